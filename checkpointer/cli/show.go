package cli

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/repository"
)

func showCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		step    int64
		detail  repository.Detail
		methods int64
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "show SNAPSHOT",
		Short: "Show what a snapshot is and how it is stored",
		Long: `Show a snapshot, which is named as "list" names it, or by --lineage and --step: files, formats, tensors by kind, how its
blocks are coded and against which snapshots, and the packs that a restore needs. Nothing is decoded.`,
		Example: `  checkpointer show 00000001-000000001200 --store file:///mnt/checkpoints
  checkpointer show --lineage default/train --step 1200 --tensors --json --store file:///mnt/checkpoints`,
		Args: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == cmd.Flags().Changed("step") || len(args) > 1 || len(args) == 1 && args[0] == "" {
				l.fault("show takes either one SNAPSHOT or --step N")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("step") {
				l.needLineage(lineage)
			} else {
				l.checkLineage(lineage)
			}
			flags.check(l)
			if err := l.err(); err != nil {
				return err
			}
			repo, err := flags.open(cmd.Context(), false)
			if err != nil {
				return err
			}
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			s, err := find(cmd.Context(), repo, lineage, name, step)
			if err != nil {
				return err
			}
			detail.Methods = int(methods)
			d, err := repo.Describe(cmd.Context(), s, detail)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), d)
			}
			return describe(cmd.OutOrStdout(), d)
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "lineage of the snapshot; needed with --step, and where several have one of that name")
	l.whole(c.Flags(), &step, "step", 0, 0, "show the snapshot of this step, of the highest epoch that has it")
	c.Flags().BoolVar(&detail.Tensors, "tensors", false, "list every tensor")
	l.whole(c.Flags(), &methods, "methods", 4096, 0, "blocks that are looked at to see how they are coded, spread evenly; each costs a small read")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func describe(w io.Writer, d *repository.Description) error {
	pinned := "no"
	if d.Pinned {
		pinned = "yes"
	}
	err := table(w, func(w io.Writer) {
		for _, r := range [][2]string{
			{"snapshot", d.ID},
			{"lineage", d.Lineage},
			{"epoch", fmt.Sprint(d.Epoch)},
			{"step", fmt.Sprint(d.Step)},
			{"name", d.Name},
			{"created", d.Created.Format(time.RFC3339)},
			{"precision", d.Precision},
			{"pinned", pinned},
			{"files", fmt.Sprintf("%d, %d tensors and other sections", d.Files, d.Sections)},
			{"raw", size(d.Raw)},
			{"stored for it", fmt.Sprintf("%s (%s of raw)", size(d.Stored), ratio(d.Stored, d.Raw))},
			{"saved", fmt.Sprintf("%s unchanged, %s differences, %s coding; %s metadata on top", size(d.Unchanged), size(d.Differences), size(d.Coding), size(d.Metadata))},
			{"needed", fmt.Sprintf("%s in %d packs", size(d.NeededBytes), len(d.Packs))},
			{"blocks", fmt.Sprintf("%d, %d of them new", d.Blocks, d.New)},
		} {
			fmt.Fprintf(w, "%s\t%s\n", r[0], r[1])
		}
	})
	sections := []func(io.Writer){
		func(w io.Writer) {
			fmt.Fprintln(w, "\nFORMAT\tFILES\tRAW")
			for _, f := range d.Formats {
				fmt.Fprintf(w, "%s\t%d\t%s\n", f.Format, f.Files, size(f.Bytes))
			}
		},
		func(w io.Writer) {
			fmt.Fprintln(w, "\nKIND\tTYPE\tSECTIONS\tRAW\tSTORED\tRATIO")
			for _, k := range d.Kinds {
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", kindName(k), cmp.Or(k.DType, "bytes"), k.Sections, size(k.Raw), size(k.Stored), ratio(k.Stored, k.Raw))
			}
		},
		func(w io.Writer) {
			fmt.Fprintln(w, "\nLINKS\tBLOCKS\tRAW\tSTORED\tRATIO")
			for _, p := range d.Links {
				fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", p.Links, p.Blocks, size(p.Raw), size(p.Stored), ratio(p.Stored, p.Raw))
			}
		},
		func(w io.Writer) {
			fmt.Fprintf(w, "\nMETHOD\tBLOCKS (of %d looked at)\tRAW\tSTORED\tRATIO\n", d.Examined)
			for _, m := range d.Methods {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", m.Method, m.Blocks, size(m.Raw), size(m.Stored), ratio(m.Stored, m.Raw))
			}
		},
		func(w io.Writer) {
			fmt.Fprintln(w, "\nFROM SNAPSHOT\tBLOCKS\tBASES OF DIFFERENCES")
			for _, s := range d.Sources {
				fmt.Fprintf(w, "%s\t%d\t%d\n", s.Snapshot, s.Blocks, s.Bases)
			}
		},
		func(w io.Writer) {
			fmt.Fprintln(w, "\nPACK\tSIZE\tBLOCKS\tUSED")
			for _, p := range d.Packs {
				fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", p.Name, size(p.Bytes), p.Blocks, p.Used)
			}
		},
	}
	if d.Tensors != nil {
		sections = append(sections, func(w io.Writer) {
			fmt.Fprintln(w, "\nTENSOR\tKIND\tTYPE\tRAW\tSTORED\tFILE")
			for _, t := range d.Tensors {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", t.Name, kindName(repository.KindPart{Kind: t.Kind, DType: t.DType}), cmp.Or(t.DType, "bytes"), t.Raw, t.Stored, cmp.Or(t.File, d.Name))
			}
		})
	}
	for _, f := range sections {
		if err != nil {
			return err
		}
		err = table(w, f)
	}
	return err
}

// kindName says what tensors are for.
func kindName(k repository.KindPart) string {
	switch k.Kind {
	case "w":
		return "weights"
	case "m":
		return "first moments"
	case "v":
		return "second moments"
	}
	if k.DType == "" {
		return "no tensor"
	}
	return "other"
}
