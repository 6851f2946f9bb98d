"""What a request has beside KV: recurrent state with its checkpoints, images and their positions."""
