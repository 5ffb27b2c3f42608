# What nomad-autoscaler and the pool need: drain and purge nodes, read policies and jobs.
node {
  policy = "write"
}

namespace "*" {
  policy       = "read"
  capabilities = ["alloc-lifecycle", "list-scaling-policies", "read-scaling-policy", "read-job-scaling"]
}

operator {
  policy = "read"
}
