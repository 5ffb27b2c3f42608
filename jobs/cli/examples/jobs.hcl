# Jobs for `spotter simulate --jobs` and `spotter plan`.

job "resnet" {
  work     = "48h" # of training, without checkpoints and restarts
  deadline = "72h" # after its arrival; leave it out for none
  count    = 20
  every    = "12h" # between two arrivals
  priority = "middle"

  checkpoint {
    size_gib            = 1.2
    incremental         = 0.6 # of its size that a checkpoint adds
    stall               = "5s"
    bandwidth_mib_per_s = 100
    keep                = 3
    notice_success      = 0.7 # of the last checkpoints after a notice
  }
}

job "llm" {
  arrive     = "24h"
  work       = "120h"
  deadline   = "240h"
  ranks      = 4 # instances, all of one offering
  changeover = "12m"

  checkpoint {
    size_gib            = 84
    incremental         = 0.3
    stall               = "30s"
    bandwidth_mib_per_s = 800
    interval            = "20m" # leave it out, and the cadence is chosen by hazard
  }
}

prices {
  storage_usd_per_gib_month = 0.023
  write_usd_per_1000        = 0.005
  egress_usd_per_gib        = 0.02
}
