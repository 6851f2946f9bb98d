"""What goes into a step: decodes, chunks of prefills, admissions, and who loses its blocks when there are none."""
