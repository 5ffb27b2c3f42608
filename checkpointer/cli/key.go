package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/sealed"
)

// keyCommand is the command for the keys of an encrypted repository.
func keyCommand(l *line) *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "List, add or remove the keys of an encrypted repository",
		Long: `Any of the keys of an encrypted repository opens it. A key is a file, or the text in $SPOTTER_KEY: an age identity (as
age-keygen makes), 32 random bytes, or a passphrase on one line. A repository is encrypted if its first save is given a key.
The last key cannot be removed; whoever loses all of them loses the repository.`,
		Example: "  checkpointer key add --store s3://bucket/checkpoints --key-file old.key --new-key-file new.key --comment laptop",
		Args:    l.noCommand,
		RunE:    l.help,
	}
	c.AddCommand(keyListCommand(l), keyAddCommand(l), keyRemoveCommand(l))
	return c
}

// keyStore is what the key commands open: a store as it is, not the repository in it.
type keyStore struct {
	url string
	keyFlags
}

func (k *keyStore) add(c *cobra.Command, key bool) {
	c.Flags().StringVar(&k.url, "store", "", "store URL, such as file:///absolute/path or s3://bucket/prefix")
	if key {
		k.keyFlags.add(c)
	}
}

func (k *keyStore) check(l *line) {
	if k.url == "" {
		l.fault("--store is missing: give the URL of a store")
		return
	}
	l.checkURL("--store", k.url)
}

// open opens the store, and reads the key that one must have.
func (k *keyStore) open() (store.Store, sealed.Key, error) {
	key, err := k.load()
	if err == nil && key == nil {
		err = sealed.ErrKeyNeeded
	}
	if err != nil {
		return nil, sealed.Key{}, err
	}
	s, err := store.Open(k.url, false)
	return s, *key, err
}

func keyListCommand(l *line) *cobra.Command {
	var (
		k      keyStore
		asJSON bool
	)
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the keys by what their slots say; no key is needed",
		Example: "  checkpointer key list --store s3://bucket/checkpoints",
		Args:    l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k.check(l)
			if err := l.err(); err != nil {
				return err
			}
			s, err := store.Open(k.url, false)
			if err != nil {
				return err
			}
			slots, err := sealed.Slots(cmd.Context(), s)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), slots)
			}
			return table(cmd.OutOrStdout(), func(w io.Writer) {
				fmt.Fprintln(w, "SLOT\tKIND\tCOMMENT")
				for _, s := range slots {
					fmt.Fprintf(w, "%s\t%s\t%s\n", s.ID, s.Kind, s.Comment)
				}
			})
		},
	}
	k.add(c, false)
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}

func keyAddCommand(l *line) *cobra.Command {
	var (
		k             keyStore
		file, comment string
		asJSON        bool
	)
	c := &cobra.Command{
		Use:     "add",
		Short:   "Let another key open the repository, too",
		Example: "  checkpointer key add --store s3://bucket/checkpoints --key-file old.key --new-key-file new.key --comment laptop",
		Args:    l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k.check(l)
			if file == "" {
				l.fault("--new-key-file is missing: name the file with the key to add")
			}
			if err := l.err(); err != nil {
				return err
			}
			added, err := sealed.LoadKey(file, func(string) string { return "" })
			if err != nil {
				return fmt.Errorf("--new-key-file: %w", err)
			}
			s, have, err := k.open()
			if err != nil {
				return err
			}
			slot, err := sealed.AddSlot(cmd.Context(), s, have, *added, comment)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), slot)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Added key slot %s\n", slot)
			return err
		},
	}
	k.add(c, true)
	c.Flags().StringVar(&file, "new-key-file", "", "file with the key to add")
	c.Flags().StringVar(&comment, "comment", "", "words for people, one line of at most 256 bytes, not secret")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func keyRemoveCommand(l *line) *cobra.Command {
	var (
		k      keyStore
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "remove SLOT",
		Short: "Remove a key, with another one that stays",
		Long: `Remove a key's slot, as "key list" names it. The key that is given must open another slot. Who had the removed key may
have kept the repository's own: to lock him out, copy the snapshots into a new repository.`,
		Example: "  checkpointer key remove 5f0c2b7a91d3e846 --store s3://bucket/checkpoints --key-file new.key",
		Args:    l.oneArg("SLOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k.check(l)
			if err := l.err(); err != nil {
				return err
			}
			s, have, err := k.open()
			if err != nil {
				return err
			}
			if err := removeSlot(cmd.Context(), s, have, args[0]); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), map[string]string{"removed": args[0]})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Removed key slot %s\n", args[0])
			return err
		},
	}
	k.add(c, true)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func removeSlot(ctx context.Context, s store.Store, have sealed.Key, id string) error {
	err := sealed.RemoveSlot(ctx, s, have, id)
	if errors.Is(err, sealed.ErrNoSlot) {
		err = fmt.Errorf("%w; `checkpointer key list` shows those that exist", err)
	}
	return err
}
