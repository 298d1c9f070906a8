package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// prepare prepares the claims of a pod, under the lock. With an error those are returned that are prepared
// all the same.
func (p *Preparer) prepare(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim, pod *corev1.Pod,
) ([]Claim, error) {
	release, err := lock(p.Dir)
	if err != nil {
		return nil, err
	}
	defer release()
	known, err := p.known()
	if err != nil {
		return nil, err
	}
	kept, due := split(known, claims)
	others := slices.DeleteFunc(slices.Clone(known), func(c Claim) bool {
		return slices.ContainsFunc(due, func(claim *resourceapi.ResourceClaim) bool { return claim.UID == c.UID })
	})
	d := newDecision(state, others, group(claims, pod))
	fresh, err := p.decide(d, due, others, pod)
	if err != nil {
		return kept, err
	}
	all := slices.Concat(others, fresh)
	if err := p.carryOut(d, all, kept, fresh); err != nil {
		_, undo := p.forget(all, fresh)
		return kept, errors.Join(err, undo)
	}
	given := slices.Concat(kept, fresh)
	if !redeemed(given...) {
		return given, nil
	}
	if err := p.rebind(ctx, all); err != nil {
		_, undo := p.forget(all, fresh)
		return slices.DeleteFunc(kept, func(c Claim) bool { return redeemed(c) }), errors.Join(err, undo)
	}
	return given, nil
}

// split tells the claims that are prepared from those that have to be.
func split(
	known []Claim, claims []*resourceapi.ResourceClaim,
) (kept []Claim, due []*resourceapi.ResourceClaim) {
	for _, claim := range claims {
		switch was := find(known, claim.UID); {
		case len(results(claim)) == 0: // nothing of ours
		case was.isOf(claim):
			kept = append(kept, was)
		default:
			due = append(due, claim)
		}
	}
	return kept, due
}

// decide says what is handed out for claims, and refuses what must not be.
func (p *Preparer) decide(
	d *decision, due []*resourceapi.ResourceClaim, others []Claim, pod *corev1.Pod,
) ([]Claim, error) {
	var fresh []Claim
	for _, claim := range due {
		c, err := d.decide(claim)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, c)
	}
	for i, claim := range due {
		otherwise, err := p.demands(claim, pod)
		if err != nil {
			return nil, err
		}
		if otherwise == "" {
			continue
		}
		for _, first := range fresh[i].firsts() {
			devices := inGroup(slices.Concat(others, fresh), first.Group)
			if err := d.misaligned(fresh[i], devices, otherwise); err != nil {
				return nil, err
			}
		}
	}
	return fresh, nil
}

// demands says what would have to be otherwise for a claim to start without all its pairs being on one switch
// each; "" where it may.
func (p *Preparer) demands(claim *resourceapi.ResourceClaim, pod *corev1.Pod) (otherwise string, err error) {
	required, err := demandOf(claim)
	if err != nil {
		return "", err
	}
	var annotations map[string]string
	if pod != nil {
		annotations = pod.Annotations
	}
	alignment, remark := p.Policy.AlignmentOf(claim.Namespace, annotations)
	if remark != "" {
		p.Log.Warn("pod", "pod", pod.Namespace+"/"+pod.Name, "remark", remark)
	}
	switch {
	case required:
		return fmt.Sprintf("without alignment: %s in the parameters of the claim or its class the pod would start",
			intent.Required), nil
	case alignment != intent.Required:
		return "", nil
	case cmp.Or(p.Policy.Alignment, intent.Preferred) == intent.Required:
		return fmt.Sprintf("the driver's flag --alignment=%s asks that of every pod", intent.Required), nil
	default:
		const without = "without annotation %s: %s the pod would start"
		return fmt.Sprintf(without, intent.AlignmentKey, intent.Required), nil
	}
}

// carryOut makes what was decided so: the checkpoint first, for what it does not have is removed. Of the
// claims that were kept the files are looked after too.
func (p *Preparer) carryOut(d *decision, all, kept, fresh []Claim) error {
	environments := map[string]*environment{}
	for _, c := range fresh {
		if err := p.composeAll(d, all, c, environments); err != nil {
			return fmt.Errorf("prepare %s: %w", c, err)
		}
		c.names(environments)
	}
	if len(fresh) > 0 {
		if err := p.save(all); err != nil {
			return err
		}
	}
	for _, c := range fresh {
		if err := p.put(c, environments); err != nil {
			return err
		}
	}
	for _, c := range kept {
		p.restore(d, all, c, environments)
	}
	return nil
}

// composeAll adds the environments of a claim's groups that are not there yet.
func (p *Preparer) composeAll(d *decision, all []Claim, c Claim, environments map[string]*environment) error {
	for _, first := range c.firsts() {
		if environments[first.Group] != nil {
			continue
		}
		e, err := p.compose(d, first.Group, inGroup(all, first.Group))
		if err != nil {
			return err
		}
		environments[first.Group] = e
	}
	return nil
}

// put writes the files of a claim, those first that its CDI spec refers to.
func (p *Preparer) put(c Claim, environments map[string]*environment) error {
	for _, first := range c.firsts() {
		if err := p.write(environments[first.Group]); err != nil {
			return err
		}
	}
	return p.writeSpec(c, environments)
}

// restore writes what is missing or not as it should be of the files of a prepared claim. What cannot be
// looked up any more stays as it is: a container that runs is not helped by less.
func (p *Preparer) restore(d *decision, all []Claim, c Claim, environments map[string]*environment) {
	err := p.composeAll(d, all, c, environments)
	if err == nil {
		err = p.put(c, environments)
	}
	if err != nil {
		p.Log.Warn("a prepared claim keeps the CDI spec that it has, if any", "claim", c.Namespace+"/"+c.Name,
			"error", err)
	}
}
