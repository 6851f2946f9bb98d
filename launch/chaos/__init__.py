"""`fourstroke chaos`: kills processes of a server under load, and holds every answer against an undisturbed run."""
