# Pool file for the target "spotter-pool", named by `pool_file` in nomad-autoscaler's configuration:
#
#   target "spotter-pool" {
#     driver = "nomad-autoscaler-spotter"
#     args   = ["target"]
#     config = { pool_file = "/etc/spotter/pool.hcl" }
#   }
#
# This one has the provider "local", whose instances are processes on this machine and whose market plays traces: for a
# laptop, for tests, and to try out a policy. It needs root.

pool "training" {
  unit           = "nodes"
  on_demand_base = 1 # of the desired count so many on-demand, the rest spot

  # What an interruption costs decides how much dearer a calmer offering may be, and how the pool is spread: both hours
  # are priced on demand. autoscaler-plugin/README.md has the arithmetic, `nomad-autoscaler-spotter plan` the figures.
  changeover = "6m" # until a replacement works: boot, image, restore
  lost_work  = "3m" # done again after an interruption, on average

  # Where the desired count and the list of instances live. A file does when there is one autoscaler.
  state {
    consul = "http://127.0.0.1:8500"
  }

  provider "local" {
    state_dir   = "/var/lib/spotter/pool"
    notice      = "2m" # as on AWS; always on the wall clock
    time_scale  = 60   # traces play an hour in a minute
    trace_start = "launch"

    # Files that are rendered into each instance's directory; jobs/README.md lists the fields.
    template "client.hcl" {
      source = "/etc/spotter/client.hcl.tmpl"
    }
    template "containerd.toml" {
      source = "/etc/spotter/containerd.toml.tmpl"
    }

    # Programs of an instance, in the order of their start.
    process "containerd" {
      argv     = ["/usr/bin/containerd", "--config", "{{.Dir}}/containerd.toml"]
      wait_for = "{{.Dir}}/containerd.sock"
    }
    process "nomad" {
      argv = ["/usr/bin/nomad", "agent", "-config", "{{.Dir}}/client.hcl"]
    }
  }

  offering "spot-west" {
    provider           = "local"
    region             = "west"
    zone               = "west-1a"
    type               = "cpu2"
    kind               = "spot"
    price_usd_per_hour = 0.8
  }

  offering "spot-east" {
    provider           = "local"
    region             = "east"
    zone               = "east-1a"
    type               = "cpu2"
    kind               = "spot"
    price_usd_per_hour = 0.9
  }

  offering "on-demand-east" {
    provider           = "local"
    region             = "east"
    zone               = "east-1a"
    type               = "cpu2"
    kind               = "on-demand"
    price_usd_per_hour = 3.0
  }
}
