package market

import (
	"fmt"
	"slices"
	"strings"
)

// String names the offering by its most exact place and its type, such as "us-west-2a/p3.2xlarge".
func (k Key) String() string {
	place := k.Zone
	if place == "" {
		place = k.Region
	}
	return place + "/" + k.Type
}

// RegionOf is the region of a zone: AWS puts a letter behind the region's number (us-west-2a; local zones: us-west-2-lax-1a),
// GCP, Alibaba and Tencent a dash and a letter or number behind its name (us-central1-a, ap-guangzhou-3).
func RegionOf(zone string) string {
	parts := strings.Split(zone, "-")
	for i, part := range parts {
		digits := strings.TrimRight(part, "abcdefghijklmnopqrstuvwxyz")
		if i < 2 || digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		if i < len(parts)-1 || len(digits) == len(part)-1 {
			return strings.Join(append(parts[:i:i], digits), "-")
		}
	}
	if i := strings.LastIndexByte(zone, '-'); i > 0 {
		return zone[:i]
	}
	return zone
}

// TraceKey reads the offering out of a trace's file name, such as us-west-2a_v100_1.json: the type is v100_1, one V100.
func TraceKey(provider, name string) (Key, error) {
	zone, kind, ok := strings.Cut(strings.TrimSuffix(name, ".json"), "_")
	if !ok || zone == "" || kind == "" {
		return Key{}, fmt.Errorf("trace file %q: the name must be ZONE_TYPE.json, such as us-west-2a_v100_1.json", name)
	}
	return Key{Provider: provider, Region: RegionOf(zone), Zone: zone, Type: kind}, nil
}

// Match finds the place of each wanted offering among those at hand. Fields that are empty on either side match anything.
// The error names every wanted offering that is missing, and what there is: of their zones, if there is anything.
func Match(want, have []Key) ([]int, error) {
	var f faults
	found := make([]int, len(want))
	var near []string
	for i, w := range want {
		found[i] = slices.IndexFunc(have, w.matches)
		if found[i] >= 0 {
			continue
		}
		f.add("%s (%s) has no recording", w, strings.TrimSpace(w.Provider+" "+w.Region))
		w.Type = ""
		for _, h := range have {
			if w.Zone != "" && w.matches(h) {
				near = append(near, h.String())
			}
		}
	}
	if len(f.told) > 0 {
		if len(near) == 0 {
			for _, h := range have {
				near = append(near, h.String())
			}
		}
		f.add("there are recordings of %s; add the missing ones, or take their offerings out of the pool", listed(near))
	}
	return found, f.err("match offerings to recordings")
}

// listed names the first of many.
func listed(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func (k Key) matches(other Key) bool {
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	return same(k.Provider, other.Provider) && same(k.Region, other.Region) &&
		same(k.Zone, other.Zone) && same(k.Type, other.Type)
}
