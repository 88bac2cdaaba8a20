"""The screens of the interface, a file each; `gpudoctor.views.tui.widgets.frame` lists them."""
