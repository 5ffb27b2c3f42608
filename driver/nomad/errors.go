package nomad

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// right is what a call needs of the token.
type right struct {
	op    string // what the call does, in words
	lacks string // the right's name
	grant string // the piece of ACL policy that grants it
	// hides is set where Nomad answers that the object does not exist rather than that it must not be seen.
	hides string
}

func nodeRight(op, policy string) right {
	return right{op: op, lacks: "node:" + policy, grant: fmt.Sprintf("node { policy = %q }", policy)}
}

func namespaceRight(op, namespace, capability string) right {
	if namespace == "" {
		namespace = api.DefaultNamespace
	}
	return right{
		op:    op,
		lacks: fmt.Sprintf("%s in namespace %q", capability, namespace),
		grant: fmt.Sprintf("namespace %q { capabilities = [%q] }", namespace, capability),
	}
}

// Error is a failed call.
type Error struct {
	Op     string // what was tried
	Status int    // HTTP status; 0 when there was no answer
	Err    error
	hint   string
}

// Error implements error.
func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }

// Unwrap implements the errors package's convention.
func (e *Error) Unwrap() error { return e.Err }

// Refused says whether the call fails again until an operator does what Hint says.
func (e *Error) Refused() bool { return e.hint != "" }

// Hint is what an operator must do, as half a sentence; empty when trying again may help.
func (e *Error) Hint() string { return e.hint }

// classify turns the error of a call into an *Error with a hint, where there is one to give.
func classify(need right, token string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: need.op, Err: err}
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) {
		e.Status = answer.StatusCode()
	}
	text := err.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		e.hint = fmt.Sprintf("nomad.token_file cannot be read (%v); make it readable for the Nomad client's user", err)
	case need.hides != "" && token != "" && strings.Contains(text, need.hides):
		e.hint = fmt.Sprintf("token lacks %s, or the object is gone; grant %s to its policy", need.lacks, need.grant)
	case e.Status != http.StatusForbidden && e.Status != http.StatusUnauthorized:
	case strings.Contains(text, "ACL token not found"), strings.Contains(text, "ACL token expired"):
		e.hint = fmt.Sprintf("Nomad does not know the token (deleted or expired); give nomad.token or nomad.token_file one with %s", need.grant)
	case token == "":
		e.hint = fmt.Sprintf("no token is configured and Nomad has ACLs enabled; set nomad.token or nomad.token_file to a token with %s", need.grant)
	default:
		e.hint = fmt.Sprintf("token lacks %s; grant %s to its policy (or the token is deleted or expired)", need.lacks, need.grant)
	}
	if errors.Is(err, context.DeadlineExceeded) && e.Status == 0 {
		e.Err = fmt.Errorf("no answer in time: %w", err)
	}
	return e
}
