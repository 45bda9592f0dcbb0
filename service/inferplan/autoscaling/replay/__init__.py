"""Playing a load over time under an autoscaling policy, with the control algorithm of the target that would run it."""
