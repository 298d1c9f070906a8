// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/tandem-k8s/tandem/cmd/tandem/terminal"

// Distances of a pair on one switch or C2C link, and of others.
const (
	near = `\b(?:PIX|PXB|C2C)\b`
	far  = `\b(?:PHB|NODE|SYS|UNK)\b`
)

// The words of each command's output that judge.
var (
	doctorVerdicts = terminal.Verdicts{Good: `^No problem\b`, Doubtful: `^(?:WARNING|UNKNOWN)\b`, Bad: `^ERROR\b`}
	planVerdicts   = terminal.Verdicts{
		Good: near, Doubtful: far + `|^note:`, Bad: `\bthe kubelet rejects this request\b`,
	}
	verifyVerdicts = terminal.Verdicts{
		Good: near + `|^verified\b|  (ok)\b`, Doubtful: far, Bad: `^not verified\b|  (slow|failed)\b`,
	}
	statusVerdicts = terminal.Verdicts{
		Good:     `; kubelet (up)$`,
		Doubtful: `^(?:DEGRADED|STALE|NOT ENFORCED|HEALTH)\b|\bNOT REGISTERED\b|\((degraded): |\b(degraded): kubectl `,
		Bad:      `^KUBELET DOWN\b|\bNO ANSWER\b|\bkubelet down\b|^HEALTH .*?(failed):|\((failed): |\b(unhealthy)\b`,
	}
	qualifyVerdicts = terminal.Verdicts{
		Good: `^\w+ +(passed)\b`, Doubtful: `^\w+ +(incomplete)\b`, Bad: `^\w+ +(failed)\b`,
	}
	explainVerdicts = terminal.Verdicts{
		Good: near, Doubtful: far + `|\bis degraded\b`, Bad: `\bwas (?:refused|rejected)\b|  (refused)\b`,
	}
)
