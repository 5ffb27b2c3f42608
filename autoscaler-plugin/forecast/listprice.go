package forecast

import (
	"math"
	"strings"

	"nomad-spotter/autoscaler-plugin/market"
)

// awsList are on-demand prices of AWS for Linux in $/h per GPU-sized unit, of the p2 and p3 types, as the price list of
// 2019-12 has them. Within a region they are the same in all zones and proportional to the size; the floor of the spot
// prices of that time, .300 of on-demand, agrees with each of them.
var awsList = map[string]struct{ p2, p3 float64 }{
	"us-east-1":    {p2: .900, p3: 3.060},
	"us-east-2":    {p2: .900, p3: 3.060},
	"us-west-2":    {p2: .900, p3: 3.060},
	"eu-west-1":    {p2: .972, p3: 3.305},
	"eu-west-2":    {p3: 3.589},
	"eu-central-1": {p2: 1.326, p3: 3.823},
}

// awsSizes are how many units a size has: the p2.xlarge has one K80 chip, the p3.2xlarge one V100.
var awsSizes = map[string]float64{
	"p2.xlarge": 1, "p2.8xlarge": 8, "p2.16xlarge": 16,
	"p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8,
}

// ListPrice is the on-demand price in $/h of the AWS types that it knows: p2 and p3 in six regions. Others are NaN.
func ListPrice(key market.Key) float64 {
	units, known := awsSizes[key.Type]
	region, there := awsList[key.Region]
	if key.Provider != "aws" || !known || !there {
		return math.NaN()
	}
	unit := region.p3
	if strings.HasPrefix(key.Type, "p2.") {
		unit = region.p2
	}
	if unit == 0 {
		return math.NaN()
	}
	return units * unit
}
