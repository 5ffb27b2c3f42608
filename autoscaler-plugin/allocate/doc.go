// Package allocate decides where capacity is bought: which offerings make up a pool of nodes, which node it is best rid
// of, when a node's work is better moved, and, for a job with a deadline, whether it runs on spot, on demand or waits.
// Every decision carries its reason in words, and the same input gives the same decision, whatever the order of its
// parts. It is pure: values and times go in, values come out. It never launches, drains or ends anything, reads no clock
// and keeps no state.
package allocate
