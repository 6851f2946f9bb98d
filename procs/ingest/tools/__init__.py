"""Tool calls: what a request says of them, how a model is told, and how calls are read from what it writes."""
