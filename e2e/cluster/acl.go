package cluster

import (
	"context"
	"fmt"

	nomadapi "github.com/hashicorp/nomad/api"
)

// bootstrapACL takes the management token and makes one token for each who needs one.
func (c *Cluster) bootstrapACL(ctx context.Context) error {
	opts := (&nomadapi.WriteOptions{}).WithContext(ctx)
	first, _, err := c.Nomad.ACLTokens().Bootstrap(opts)
	if err != nil {
		return fmt.Errorf("bootstrap ACLs: %w", err)
	}
	c.values.ManagementToken = first.SecretID
	c.Nomad.SetSecretID(first.SecretID)
	for name, to := range map[string]*string{
		"driver": &c.values.DriverToken, "weak": &c.values.WeakToken, "pool": &c.values.PoolToken,
	} {
		rules, err := templates.ReadFile("templates/acl-" + name + ".hcl")
		if err != nil {
			return err
		}
		if _, err := c.Nomad.ACLPolicies().Upsert(&nomadapi.ACLPolicy{Name: name, Rules: string(rules)}, opts); err != nil {
			return fmt.Errorf("write ACL policy %q: %w", name, err)
		}
		token, _, err := c.Nomad.ACLTokens().Create(&nomadapi.ACLToken{Name: name, Type: "client", Policies: []string{name}}, opts)
		if err != nil {
			return fmt.Errorf("create ACL token %q: %w", name, err)
		}
		*to = token.SecretID
	}
	return nil
}
