"""The engine-neutral autoscaling policy, its replay, and its rendering for real targets."""
