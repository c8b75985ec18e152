"""Parts of the jobs on whole topics; what people import (`audit`, `export`, `diff`, `profile`) stands one folder up."""
