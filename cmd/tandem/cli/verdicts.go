// SPDX-License-Identifier: Apache-2.0

package cli

// Distances of a pair on one switch or C2C link, and of others: in the third column of a table of pairs,
// and after a number of pairs. Names of resources and netdevs can contain the same words.
const (
	near = `(?:^ *\S+  +\S+  +|\b\d+ )(PIX|PXB|C2C)\b`
	far  = `(?:^ *\S+  +\S+  +|\b\d+ )(PHB|NODE|SYS|UNK)\b`
)

// commandVerdicts are the words of each command's output that judge. A name of a pod, resource or device is
// none of the words: a pattern includes the words, spaces or punctuation around the word.
var commandVerdicts = map[string]verdicts{
	"doctor": {Good: `^No problem\b`, Doubtful: `^(?:WARNING|UNKNOWN)\b`, Bad: `^ERROR\b`},
	"plan": {
		Good: near, Doubtful: far + `|^note:`, Bad: `\bthe kubelet rejects this request\b`,
	},
	"verify": {
		Good: near + `|^verified\b|^\d+  .*?  (ok)\b`, Doubtful: far,
		Bad: `^not verified\b|^\d+  .*?  (slow|failed)\b`,
	},
	"status": {
		Good: `; kubelet (up)$`,
		Doubtful: `^(?:DEGRADED|STALE|NOT ENFORCED|HEALTH)\b|\bNOT REGISTERED\b|\((degraded): ` +
			`|\b(degraded): kubectl `,
		Bad: `^KUBELET DOWN\b|\bNO ANSWER\b|\bkubelet down\b|^HEALTH \d+ devices? of \S+ (failed): |\((failed): ` +
			`|\(\d+ \w+ (unhealthy)\)|  (?:allocated, )?(unhealthy)(?: |$)`,
	},
	"qualify": {
		Good: `^\w+ +(passed)\b`, Doubtful: `^\w+ +(incomplete)\b`, Bad: `^\w+ +(failed)\b`,
	},
	"explain": {
		Good: near, Doubtful: far + `|\bis degraded\b`, Bad: `\bwas (?:refused|rejected)\b|  (refused)(?:: |  )`,
	},
}
