// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/tandem-k8s/tandem/cmd/internal/cli"

// Distances of a pair on one switch or C2C link, and of others: in the third column of a table of pairs,
// and after a number of pairs. Names of resources and netdevs can contain the same words.
const (
	near = `(?:^ *\S+  +\S+  +|\b\d+ )(PIX|PXB|C2C)\b`
	far  = `(?:^ *\S+  +\S+  +|\b\d+ )(PHB|NODE|SYS|UNK)\b`
)

// The words of each command's output that judge. A name of a pod, resource or device is none of them: a
// pattern includes the words, spaces or punctuation around the word.
var (
	doctorVerdicts = cli.Verdicts{Good: `^No problem\b`, Doubtful: `^(?:WARNING|UNKNOWN)\b`, Bad: `^ERROR\b`}
	planVerdicts   = cli.Verdicts{
		Good: near, Doubtful: far + `|^note:`, Bad: `\bthe kubelet rejects this request\b`,
	}
	verifyVerdicts = cli.Verdicts{
		Good: near + `|^verified\b|^\d+  .*?  (ok)\b`, Doubtful: far,
		Bad: `^not verified\b|^\d+  .*?  (slow|failed)\b`,
	}
	statusVerdicts = cli.Verdicts{
		Good: `; kubelet (up)$`,
		Doubtful: `^(?:DEGRADED|STALE|NOT ENFORCED|HEALTH)\b|\bNOT REGISTERED\b|\((degraded): ` +
			`|\b(degraded): kubectl `,
		Bad: `^KUBELET DOWN\b|\bNO ANSWER\b|\bkubelet down\b|^HEALTH \d+ devices? of \S+ (failed): |\((failed): ` +
			`|\(\d+ \w+ (unhealthy)\)|  (?:allocated, )?(unhealthy)(?: |$)`,
	}
	qualifyVerdicts = cli.Verdicts{
		Good: `^\w+ +(passed)\b`, Doubtful: `^\w+ +(incomplete)\b`, Bad: `^\w+ +(failed)\b`,
	}
	explainVerdicts = cli.Verdicts{
		Good: near, Doubtful: far + `|\bis degraded\b`, Bad: `\bwas (?:refused|rejected)\b|  (refused)(?:: |  )`,
	}
)
