// SPDX-License-Identifier: Apache-2.0

package small

import "testing"

func TestDead(t *testing.T) {
	for n, want := range map[int]string{9: "small", 10: "small", 11: "large", 12: "small", 13: "large"} {
		if got := Dead(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestHangs(t *testing.T) {
	if got := Hangs(3); got != 6 {
		t.Errorf("three times two is %d", got)
	}
}

func TestLevels(t *testing.T) {
	if Levels["high"] != 255 {
		t.Error("the level high is not 255")
	}
}

func TestSurvives(t *testing.T) {
	Survives(2)
}

func TestFails(t *testing.T) {
	t.Error("this test fails without a mutation")
}
