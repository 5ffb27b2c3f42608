package market

import "time"

// Change is one event of a market: from At on, one of its offerings is up or not, at a price.
type Change struct {
	At       time.Duration // since the start of the market
	Offering int           // index into the offerings that the market is made of
	Up       bool          // instances can be had and are left alone
	Price    float64       // $/h of one instance; NaN: not known
}

// Feed hands out the changes of a market in the order of their times, one by one, so that a market of any length needs
// little memory. At time 0 there is one for each offering. After the last it returns io.EOF.
type Feed interface {
	Next() (Change, error)
}
