"""The terminal interface (Textual). Knows core and nothing else: what it can have done is handed to it as a `Work`.

- `app`: the application and its commands; `base`: what every screen has; `screens`: one module per screen
- `widgets`: tables and other parts of screens; `words`: values of core as text and cells; `marks`, `themes`: looks
- `work`: the functions that the interface calls; `repair`: the open plan; `recordings`: the list of demos
- `terminal`: loss of the terminal, signals, ASCII only
"""
