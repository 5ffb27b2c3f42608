// Package cloud holds what every provider of instances and the pool have in common: offerings, instances and the
// errors that the pool decides on. It holds values only; each provider is a package below it. Interfaces are declared
// by those who use a provider.
package cloud

import (
	"errors"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// ErrUnavailable says that the provider has no capacity for an offering at the moment: try another one, and this one
// later. Providers wrap it.
var ErrUnavailable = errors.New("no capacity")

// ErrNotFound says that a provider knows no instance of that ID.
var ErrNotFound = errors.New("no such instance")

// Kind is how capacity is bought.
type Kind string

// Kinds of capacity.
const (
	Spot     Kind = "spot"      // cheap, may be reclaimed at any time
	OnDemand Kind = "on-demand" // dear, stays
)

// Offering is one thing that can be bought: provider × region × zone × type × kind.
type Offering struct {
	Name            string
	Provider        string
	Region          string // a Nomad datacenter
	Zone            string
	Type            string
	Kind            Kind
	PriceUSDPerHour float64
	MaxNodes        int           // the most of a pool's nodes that may be of it; 0: any number
	MeanLifetime    time.Duration // until an instance is taken back, as far as its provider says; 0: it does not
}

// State is where an instance is in its life. It only ever moves forward.
//
//	running ──notice──▶ noticed ──deadline──▶ gone
//	   └──────terminated, died, killed──────────▲
type State string

// States of an instance.
const (
	Running State = "running" // launched; its Nomad node may not be ready yet
	Noticed State = "noticed" // the provider said that it takes the instance away
	Gone    State = "gone"    // ended; only the record is left
)

// Instance is one machine, living or ended, as its provider knows it. The price is that of the launch.
type Instance struct {
	ID                 string    `json:"id"` // also the name of its Nomad node
	Pool               string    `json:"pool"`
	Offering           string    `json:"offering"`
	Provider           string    `json:"provider"`
	Kind               Kind      `json:"kind"`
	Region             string    `json:"region"`
	Zone               string    `json:"zone"`
	Type               string    `json:"type"`
	PriceUSDPerHour    float64   `json:"price_usd_per_hour"`
	MaxPriceUSDPerHour float64   `json:"max_price_usd_per_hour,omitzero"` // maximum price of a spot instance; 0: none
	State              State     `json:"state"`
	LaunchedAt         time.Time `json:"launched_at"`
	NoticedAt          time.Time `json:"noticed_at,omitzero"`
	Deadline           time.Time `json:"deadline,omitzero"` // when a noticed instance is taken away
	EndedAt            time.Time `json:"ended_at,omitzero"`
	Terminated         bool      `json:"terminated,omitempty"` // it ended because Terminate was called
	Reason             string    `json:"reason,omitempty"`     // why it was noticed or ended, in words
	LogTail            string    `json:"log_tail,omitempty"`
}

// Launch asks for one instance. The caller chooses the ID, and asking twice for the same ID launches once: a caller
// that died between asking and hearing the answer asks again, or finds the instance in the list.
type Launch struct {
	ID                 string
	Offering           string
	MaxPriceUSDPerHour float64 // the instance is not to be had, or taken back, while the market is above; 0: no maximum
}

// Offer is what the market says about an offering now.
type Offer struct {
	Offering  string
	Available bool // false: a launch would fail with ErrUnavailable; true may still fail

	// PriceUSDPerHour is what an instance costs at the moment; 0: it is not known, and the pool file's price holds.
	PriceUSDPerHour float64
}

// Setup is what a provider is built from: its own block of the pool file, and the offerings that name it.
type Setup struct {
	Pool      string
	Body      hcl.Body
	Offerings []OfferingSetup
}

// OfferingSetup is an offering and the attributes of its block that only its provider knows.
type OfferingSetup struct {
	Offering
	Body hcl.Body
}
