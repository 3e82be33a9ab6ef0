"""How programs run: JAX, compilation, devices, processes, memory, files and progress; nothing here knows of models."""
