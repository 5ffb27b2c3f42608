# Autoscaling policy of the pool "training": nomad-autoscaler reads it from its `policy { dir = … }`.
#
# The count is the desired size of the pool in the pool's unit (nodes here). Which instances it is made of, spot or
# on-demand and where, is decided by the pool file.

scaling "training" {
  enabled = true

  # With a check whose source is "nomad-apm", which is also the default source, nomad-autoscaler raises a min of 0 to 1.
  min = 1
  max = 20

  policy {
    # Scaling only records the new size, so another change may follow soon.
    cooldown            = "30s"
    evaluation_interval = "10s"

    # Keep a fixed number of nodes. Replacing what the market takes away needs no scaling: the count does not change.
    check "size" {
      strategy "fixed-value" {
        value = "3"
      }
    }

    # Attributes here are flat strings; all else is in the pool file.
    target "spotter-pool" {
      pool = "training"
    }
  }
}
