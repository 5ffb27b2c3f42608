# A training job for interruptible nodes. Copy it, change `image`, `args` and the checkpoint block, and run it with
#
#   nomad job run -var image=registry.example.com/you/train:1 train.nomad.hcl
#
# Every variable is described here and in jobs/README.md.

variable "image" {
  type        = string
  description = "Image with the training program, in a registry. Not used when image_archive is set."
  default     = "registry.example.com/train:latest"
}

variable "image_archive" {
  type        = string
  description = "URL of an OCI archive (docker save, skopeo copy … oci-archive:) to use instead of a registry. Any URL that Nomad's artifact block takes."
  default     = ""
}

variable "args" {
  type        = list(string)
  description = "Arguments of the training program."
  default     = []
}

variable "type" {
  type        = string
  description = "batch: the job is done when training ends. service: Nomad keeps the task running; it must not exit when training ends."
  default     = "batch"
}

variable "datacenters" {
  type        = list(string)
  description = "Nomad datacenters to run in. Each region of a pool is one."
  default     = ["*"]
}

variable "prefer_datacenter" {
  type        = string
  description = "Datacenter to start in when there is room, such as the one that holds the data."
  default     = ""
}

variable "kind" {
  type        = string
  description = "Kind of node to prefer: spot or on-demand. The other kind is used when there is no room."
  default     = "spot"
}

variable "cpu" {
  type        = number
  description = "CPU of the task in MHz."
  default     = 500
}

variable "memory" {
  type        = number
  description = "Memory of the task in MiB."
  default     = 512
}

variable "checkpoint_dir" {
  type        = string
  description = "Directory inside the container that the program writes checkpoints into. It is SPOTTER_CHECKPOINT_DIR there."
  default     = "/checkpoints"
}

variable "checkpoint_pattern" {
  type        = string
  description = "Which names in checkpoint_dir are checkpoints, as a glob. Empty: all of them."
  default     = ""
}

variable "checkpoint_signal" {
  type        = string
  description = "Signal that asks the program for a checkpoint, such as SIGUSR1. Empty: it uses the socket, the request file, or its own rhythm."
  default     = ""
}

variable "checkpoint_interval" {
  type        = string
  description = "Ask for a checkpoint this often. auto: as often as costs the least on the node. 0s: the program's own rhythm."
  default     = "auto"
}

variable "kill_timeout" {
  type        = string
  description = "How long a last checkpoint may take, upload included, when the task is stopped. Nomad clients cut it to their max_kill_timeout, which is 30s by default."
  default     = "2m"
}

job "train" {
  datacenters = var.datacenters
  type        = var.type

  # Spot nodes first: they cost a fraction. A preference, not a constraint: when spot is scarce, training goes on
  # elsewhere.
  affinity {
    attribute = "${meta.spotter_kind}"
    value     = var.kind
    weight    = 80
  }

  dynamic "affinity" {
    for_each = var.prefer_datacenter == "" ? [] : [var.prefer_datacenter]
    content {
      attribute = "${node.datacenter}"
      value     = affinity.value
      weight    = 50
    }
  }

  group "trainer" {
    # Move to another node as often as it takes. The default of a batch job is one move a day, after which the job would
    # be dead. Nomad wants attempts = 0 beside unlimited, and a delay of at least 5 s.
    reschedule {
      attempts       = 0
      unlimited      = true
      delay          = "5s"
      delay_function = "constant"
    }

    # The restart block is left at its default: a program that fails by itself is tried again on the same node a few
    # times. On a node that is being reclaimed the driver refuses such a restart, so that the task moves at once.

    task "main" {
      driver = "spotter"

      # SIGTERM comes after the last checkpoint is saved; this is the time for both.
      kill_timeout = var.kill_timeout

      dynamic "artifact" {
        for_each = var.image_archive == "" ? [] : [var.image_archive]
        content {
          source      = artifact.value
          destination = "local/image.oci.tar"
          mode        = "file"
          options {
            archive = "false" # the driver wants the archive itself, not what is in it
          }
        }
      }

      config {
        image = var.image_archive == "" ? var.image : "oci-archive:local/image.oci.tar"
        args  = var.args

        checkpoint {
          dir      = var.checkpoint_dir
          pattern  = var.checkpoint_pattern
          signal   = var.checkpoint_signal
          interval = var.checkpoint_interval
        }
      }

      resources {
        cpu    = var.cpu
        memory = var.memory
      }
    }
  }
}
