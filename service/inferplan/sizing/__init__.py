"""The physics: memory, step time, the textbook method, fleet size and cost."""
