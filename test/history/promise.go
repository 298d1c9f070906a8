// SPDX-License-Identifier: Apache-2.0

package history

// Promise is a promise to users of a node, named by its breach.
type Promise string

// Promises. Package documentation groups them.
const (
	TwoOwners     Promise = "a device with two owners"
	Another       Promise = "another container"
	OtherDevices  Promise = "other devices"
	Contract      Promise = "an answer that breaks the contract"
	NoAnswer      Promise = "no answer"
	NotBest       Promise = "not the best"
	Stuck         Promise = "free, taken for held"
	NotEnforced   Promise = "not enforced"
	Forgotten     Promise = "held, taken for free"
	ForgottenInit Promise = "held, taken for free, of an init container"
	Refused       Promise = "refused"
)

// InStorms lists the promises that faults of calls, reads and processes can break; see the package
// documentation for the reasons.
var InStorms = []Promise{
	Another, OtherDevices, NoAnswer, NotBest, Stuck, NotEnforced, Forgotten, ForgottenInit, Refused,
}
