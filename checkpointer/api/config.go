package api

import "time"

// AgentConfig is the file that whoever starts an agent writes for it: `nomad-driver-spotter agent --config FILE` or
// `checkpointer agent --config FILE`. All paths are absolute paths of the host.
type AgentConfig struct {
	Lineage string `json:"lineage"` // the logical task, such as "default/train/trainer/main/0"
	Writer  string `json:"writer"`  // who claims the epoch, for people: allocation and node

	// A training of several ranks saves one checkpoint in as many parts, each with an agent of its own.
	Rank  int    `json:"rank,omitempty"`
	Ranks int    `json:"ranks,omitempty"` // 0 or 1: there is only one
	Epoch uint64 `json:"epoch,omitempty"` // claimed once for all ranks; 0: the agent claims one for itself, which ranks must not

	// Fork allows to go on in a replica of the lineage's store when only that is reachable. SingleWriter says that nobody else
	// ever writes the lineage: then a store will do that cannot tell which of several writers came first.
	Fork         bool `json:"fork,omitempty"`
	SingleWriter bool `json:"single_writer,omitempty"`

	CheckpointDir     string `json:"checkpoint_dir"`      // where the task writes, as the host sees it
	TaskCheckpointDir string `json:"task_checkpoint_dir"` // the same, as the task sees it
	StateDir          string `json:"state_dir"`           // the agent's own: stage, state file
	ControlSocket     string `json:"control_socket"`
	TaskSocket        string `json:"task_socket"`
	UID               int    `json:"uid"` // owner of the task socket and of what is restored
	GID               int    `json:"gid"`

	Pattern  string   `json:"pattern"`  // glob on names in the checkpoint directory; empty: every name
	Signal   int      `json:"signal"`   // sent to the task on a request; 0: none
	Interval Interval `json:"interval"` // how often to ask for a checkpoint; zero: the task's own rhythm

	// What an automatic interval goes by, beside what the agent measures.
	Cadence *CadenceConfig `json:"cadence,omitempty"` // nil: all defaults

	// What the agent may take from its node, and how it spends it.
	MaxCPUs        int    `json:"max_cpus,omitempty"`         // cores while the task runs; 0: 1
	MaxMemoryBytes int64  `json:"max_memory_bytes,omitempty"` // 0: 512 MiB
	Effort         string `json:"effort,omitempty"`           // auto, fast, small or none; empty: auto
	Links          int    `json:"links,omitempty"`            // differences one after the other before a block stands alone; 0: 3

	// Precision says what may be rounded: nothing (exact), or an optimizer's moments (compact).
	Precision string `json:"precision,omitempty"` // exact or compact; empty: exact

	// What a checkpoint must reach to be called durable, and in how many other regions it is copied.
	Durability Durability `json:"durability,omitempty"` // empty: DurabilityStore
	Replicas   int        `json:"replicas,omitempty"`   // needs Consul, which knows the stores

	Store   string        `json:"store"`              // URL; empty: found through Consul
	KeyFile string        `json:"key_file,omitempty"` // key of encrypted stores; empty: $SPOTTER_KEY, and without that none
	Consul  *ConsulConfig `json:"consul,omitempty"`

	LogLevel string `json:"log_level"`
}

// CadenceConfig holds what an agent cannot see of its node. A field that is zero has the default that stands beside it.
type CadenceConfig struct {
	MTBF           Duration  `json:"mtbf,omitempty"`         // mean time from launch to interruption; 0: 2h20m
	HazardShape    float64   `json:"hazard_shape,omitempty"` // of the Weibull distribution of that time; 0: 0.62; 1: as likely at every age
	NoticeSuccess  float64   `json:"notice_success"`         // part of the interruptions that are told in time for a final checkpoint
	MaxInterval    Duration  `json:"max_interval,omitempty"` // 0: none
	LaunchedAt     time.Time `json:"launched_at,omitzero"`   // of the instance; zero: when the machine was booted
	SpotUSD        float64   `json:"spot_usd_per_hour"`      // price of the instance; 0, as is that of rework: they are the same
	ReworkUSD      float64   `json:"rework_usd_per_hour"`    // price at which lost work is done again
	StorageUSDOfGB float64   `json:"storage_usd_per_gb"`     // of storing one GB of a checkpoint and keeping it for as long as it is kept
}

// ConsulConfig says how stores are found.
type ConsulConfig struct {
	Address    string `json:"address"` // such as "http://127.0.0.1:8500"
	Token      string `json:"token,omitempty"`
	Datacenter string `json:"datacenter,omitempty"`
	Service    string `json:"service"` // service name of the stores; their URL is the service meta key "url"
}

// Durability is what events, answers and requests mean by durable.
type Durability string

// The levels. A request that is final waits for the store at least: the node is left.
const (
	DurabilityLocal      Durability = "local"      // on this node's disk, synced, whatever the task does to its files
	DurabilityStore      Durability = "store"      // in one store
	DurabilityReplicated Durability = "replicated" // in one store and in its replicas in other regions
)
