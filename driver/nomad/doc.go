// Package nomad is a thin client of Nomad's HTTP API for what a task driver cannot learn or do otherwise: mark its node
// ineligible, stop an allocation so that it is replaced, watch for a drain of the node, and read the facts of a job that
// TaskConfig leaves out. It works with Nomad 1.6 and newer. It decides nothing and holds no state but the token.
package nomad
