package main

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/driver/config"
)

// A job may name just the stores that the agent in this program opens.
func TestStores(t *testing.T) {
	must.Eq(t, store.Schemes(), config.StoreSchemes)
}
