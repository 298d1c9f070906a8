// SPDX-License-Identifier: Apache-2.0

// Command mutate measures what the tests detect: it draws a sample of small faults from all packages that
// decide, and runs the tests with each.
//
//	go run ./test/mutate -o bin/mutate.json                  # 2,000 mutations; takes hours
//	go run ./test/mutate -run ^topology -against before.json # some packages, compared with earlier results
//	go run ./test/mutate -run 'dra gates.lost: statement'    # some mutations, as the output names them
//
// A mutation negates a condition or an operand of && and ||, moves the boundary of a comparison (< becomes
// <=), drops a statement, or changes a constant: a number becomes greater by one, a string empty. Logs and
// the words of errors are not mutated, locks neither.
//
// The sample is the same for the same code and seed. A mutation is known by its package, function, kind and
// text, and its occurrence among equal ones, and is drawn by a hash of these: a change of the code leaves
// most of the sample as it was, and moved lines all of it. So -against compares the share of each package
// that dies with that of another commit, and fails if it got worse by more than noise.
//
// Nothing is compiled for a mutation. Rewritten files have the whole sample at once (package mutation), and
// are passed to the compiler by "go test -overlay": the source tree stays unchanged. Each test of a package
// runs once by itself without a mutation and records the sites that it reaches; only these tests then run
// with a mutation of such a site, with -short, until one fails, crashes or exceeds five times its time. A
// mutation that survives the tests of its own package goes to the packages that judge its area (areas.go).
// Tests of other modules are not asked, and programs that tests build (test/programs) have no mutations.
//
// Survivors are no errors: some mutations change nothing observable. The hand-written faults of test/mutants
// must all be detected.
package main
