# What the task driver needs: mark its own node ineligible, read its allocations and move them.
node {
  policy = "write"
}

namespace "*" {
  policy       = "read"
  capabilities = ["alloc-lifecycle"]
}
