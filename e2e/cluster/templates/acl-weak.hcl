# Too little for the task driver: it may look, and change nothing.
node {
  policy = "read"
}

namespace "*" {
  policy = "read"
}
