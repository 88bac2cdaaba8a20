"""The places of the interface, a file each; `gpudoctor.views.tui.places` lists them."""
