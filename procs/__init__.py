"""The processes. One folder is one kind of process; the modules beside the folders are what several share."""
