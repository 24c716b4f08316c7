"""The engine of pipelineParallel and modelParallel: one model, divided among the nodes."""
