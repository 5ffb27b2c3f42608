package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// Schema of a file of jobs to simulate.
type (
	jobsFile struct {
		Jobs   []jobBlock   `hcl:"job,block"`
		Prices *pricesBlock `hcl:"prices,block"`
	}
	jobBlock struct {
		Name       string           `hcl:"name,label"`
		Work       string           `hcl:"work"`
		Deadline   string           `hcl:"deadline,optional"`
		Arrive     string           `hcl:"arrive,optional"`
		Count      *int             `hcl:"count,optional"`
		Every      string           `hcl:"every,optional"`
		Priority   string           `hcl:"priority,optional"`
		Ranks      *int             `hcl:"ranks,optional"`
		Replicas   *int             `hcl:"replicas,optional"`
		Apart      string           `hcl:"apart,optional"`
		Changeover string           `hcl:"changeover,optional"`
		MaxPrice   float64          `hcl:"max_price_usd_per_hour,optional"`
		Checkpoint *checkpointBlock `hcl:"checkpoint,block"`
	}
	checkpointBlock struct {
		SizeGiB   float64  `hcl:"size_gib,optional"`
		Share     *float64 `hcl:"incremental,optional"`
		Stall     string   `hcl:"stall,optional"`
		Bandwidth float64  `hcl:"bandwidth_mib_per_s,optional"`
		Keep      *int     `hcl:"keep,optional"`
		Notice    float64  `hcl:"notice_success,optional"`
		Interval  string   `hcl:"interval,optional"`
	}
	pricesBlock struct {
		Storage float64 `hcl:"storage_usd_per_gib_month,optional"`
		Writes  float64 `hcl:"write_usd_per_1000,optional"`
		Reads   float64 `hcl:"read_usd_per_1000,optional"`
		Egress  float64 `hcl:"egress_usd_per_gib,optional"`
	}
)

// Defaults of a job.
const (
	defaultChangeover = 6 * time.Minute // as a pool's
	defaultStall      = 5 * time.Second
	defaultKeep       = 3
	mebibyte          = 1 << 20
	maxJobs           = 1_000_000
	maxSize           = 1 << 30 // GiB of a checkpoint, and MiB/s: far more than there is
)

// workload is what a jobs file asks for.
type workload struct {
	jobs   simulate.JobList
	specs  []*simulate.Spec
	prices cost.Prices // without the price of on-demand
}

// parseJobs reads a jobs file. It reports all faults together, but for those that need to know the pool.
func parseJobs(data []byte, filename string) (workload, error) {
	var file jobsFile
	if err := decodeHCL(data, filename, &file); err != nil {
		return workload{}, err
	}
	var faults []error
	if len(file.Jobs) == 0 {
		faults = append(faults, errors.New(`job: none given; add job "NAME" { work = "48h" }`))
	}
	w := workload{prices: cost.Prices{Currency: "USD"}}
	if p := file.Prices; p != nil {
		w.prices.Storage, w.prices.Writes, w.prices.Reads, w.prices.Egress = p.Storage, p.Writes, p.Reads, p.Egress
	}
	priced := w.prices
	priced.OnDemand = 1 // the pool's price, known later
	if err := priced.Check(); err != nil {
		faults = append(faults, fmt.Errorf("prices: %w", err))
	}
	seen := map[string]bool{}
	for _, b := range file.Jobs {
		c := &fieldChecker{prefix: fmt.Sprintf("job %q: ", b.Name)}
		if seen[b.Name] {
			c.add("given twice; names must differ")
		}
		seen[b.Name] = true
		w.add(b, c)
		faults = append(faults, c.faults...)
	}
	slices.SortStableFunc(w.jobs, func(a, b simulate.Job) int { return int(min(max(a.Arrive-b.Arrive, -1), 1)) })
	for i := range w.jobs {
		w.jobs[i].ID = i
	}
	return w, errors.Join(faults...)
}

// add adds the jobs of a block.
func (w *workload) add(b jobBlock, c *fieldChecker) {
	before := len(c.faults)
	work := c.duration("work", b.Work, 0)
	if len(c.faults) > before {
		work = time.Second // what cannot be read is not to be told of again
	}
	s := &simulate.Spec{
		Name: b.Name, Work: work, Deadline: c.duration("deadline", b.Deadline, 0),
		Changeover: c.duration("changeover", b.Changeover, defaultChangeover), MaxPrice: b.MaxPrice,
		Ranks: c.count("ranks", b.Ranks), Replicas: c.count("replicas", b.Replicas),
	}
	if i := slices.Index([]string{"low", "middle", "high"}, b.Priority); b.Priority == "" {
		s.Priority = 1
	} else if s.Priority = i; i < 0 {
		c.add(`priority: %q is unknown; give "low", "middle" or "high", which is always on demand`, b.Priority)
	}
	switch b.Apart {
	case "", "region":
	case "zone":
		s.Apart = simulate.ByZone
	default:
		c.add(`apart: %q is unknown; give "region" or "zone"`, b.Apart)
	}
	k := b.Checkpoint
	if k == nil {
		k = &checkpointBlock{}
	}
	for _, size := range []struct {
		field string
		value *float64
	}{{"checkpoint.size_gib", &k.SizeGiB}, {"checkpoint.bandwidth_mib_per_s", &k.Bandwidth}} {
		if !(*size.value >= 0 && *size.value <= maxSize) {
			c.add("%s: %v is outside 0 to %d", size.field, *size.value, maxSize)
			*size.value = 0
		}
	}
	s.Checkpoint = simulate.Checkpoint{
		Bytes: k.SizeGiB * cost.GiB, Bandwidth: k.Bandwidth * mebibyte, Notice: k.Notice, Keep: defaultKeep,
		Stall: c.duration("checkpoint.stall", k.Stall, defaultStall), Interval: c.duration("checkpoint.interval", k.Interval, 0),
	}
	if k.Share != nil {
		if s.Checkpoint.Share = *k.Share; !(*k.Share > 0 && *k.Share <= 1) {
			c.add("checkpoint.incremental: %v is outside 0 to 1; it is the share of its size that a checkpoint adds", *k.Share)
		}
	}
	if k.Keep != nil {
		s.Checkpoint.Keep = c.count("checkpoint.keep", k.Keep)
	}
	arrive, every := c.duration("arrive", b.Arrive, 0), c.duration("every", b.Every, 0)
	count := c.count("count", b.Count)
	if len(w.jobs)+count > maxJobs {
		c.add("count: %d jobs are more than %d in all; lower it", count, maxJobs)
		return
	}
	if every > 0 && arrive > 0 && int64(count) > int64((1<<62-arrive)/every) {
		c.add("every: %d times %v is more than 146 years; lower one of them", count, every)
		return
	}
	w.specs = append(w.specs, s)
	for i := range count {
		w.jobs = append(w.jobs, simulate.Job{Spec: s, Arrive: arrive + time.Duration(i)*every})
	}
}

// checkArrivals refuses jobs that arrive when the recordings are over.
func (w *workload) checkArrivals(length time.Duration) error {
	var faults []error
	told := map[*simulate.Spec]bool{}
	for _, j := range w.jobs {
		if length > 0 && j.Arrive >= length && !told[j.Spec] {
			faults = append(faults, fmt.Errorf("job %q: arrive: %v is not before the end of the recordings, %v; let it arrive earlier, "+
				"lower count or every, or give longer recordings", j.Name, j.Arrive, length))
			told[j.Spec] = true
		}
	}
	return errors.Join(faults...)
}

// fieldChecker gathers the faults of one block of a file.
type fieldChecker struct {
	prefix string
	faults []error
}

func (c *fieldChecker) add(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(c.prefix+format, args...))
}

// maxDuration keeps sums of durations within their type.
const maxDuration = 10 * 365 * 24 * time.Hour

func (c *fieldChecker) duration(field, text string, fallback time.Duration) time.Duration {
	if text == "" {
		return fallback
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		c.add("%s: %q is not a duration; write it like \"90s\", \"10m\" or \"48h\"", field, text)
	case d < 0:
		c.add("%s: %s is negative; give 0 or more", field, text)
	case d > maxDuration:
		c.add("%s: %s is more than ten years, %s; give less", field, text, maxDuration)
	}
	return max(min(d, maxDuration), 0)
}

func (c *fieldChecker) count(field string, n *int) int {
	if n == nil {
		return 1
	}
	if *n < 1 {
		c.add("%s: %d is below 1; give 1 or more, or leave it out for 1", field, *n)
	}
	return max(*n, 1)
}

// decodeHCL reads a file into a schema. Its faults have their lines.
func decodeHCL(data []byte, filename string, into any) error {
	file, diags := hclparse.NewParser().ParseHCL(data, filename)
	if !diags.HasErrors() {
		diags = append(diags, gohcl.DecodeBody(file.Body, nil, into)...)
	}
	var faults []error
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		line := 1
		if d.Subject != nil {
			line = d.Subject.Start.Line
		}
		faults = append(faults, fmt.Errorf("line %d: %s: %s", line, d.Summary, strings.ReplaceAll(d.Detail, "\n", " ")))
	}
	return errors.Join(faults...)
}
