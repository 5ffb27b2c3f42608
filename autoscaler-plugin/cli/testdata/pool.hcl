pool "training" {
  state { file = "WORK/pool.json" }
  provider "recorded" {}
  offering "west" {
    provider           = "recorded"
    region             = "west"
    type               = "cpu2"
    kind               = "spot"
    price_usd_per_hour = 1
  }
  offering "od" {
    provider           = "recorded"
    region             = "east"
    type               = "cpu2"
    kind               = "on-demand"
    price_usd_per_hour = 5
  }
}
