package inventory_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

const owner = "vdo/vdo-inventory-site"

var (
	key, otherKey = []byte("key"), []byte("another key")
	first         = inventory.Of(entry(matrix.CSI, "Deployment", "a", "csi@3.5.1"))
	second        = first.With(entry(matrix.CSI, "Deployment", "b", "csi@3.5.1"))
	forged        = second.With(entry(matrix.CSI, "Deployment", "victim", "csi@3.5.1"))
)

// kept are the copies of a record: nil is of one that is not there.
func kept(record, second map[string]string) []inventory.Copy {
	return []inventory.Copy{
		{Name: owner, Found: record != nil, Data: record},
		{Name: "vdo/vdo-inventory-copy-site", Found: second != nil, Data: second},
	}
}

func sealed(inv inventory.Inventory, key []byte, serial int64) map[string]string {
	return inventory.Sealer{Key: key, Owner: owner, Serial: serial}.Data(inv)
}

func bare(inv inventory.Inventory) map[string]string { return sealed(inv, nil, 0) }

// with is a ConfigMap in which something was replaced.
func with(data map[string]string, key, old, by string) map[string]string {
	data[key] = strings.Replace(data[key], old, by, 1)
	return data
}

// anchored is a proof by a status that knows the record of a number.
func anchored(serial int64) inventory.Proof {
	return inventory.Proof{Key: key, Owner: owner, Anchor: inventory.Anchor{Serial: serial, KeyID: inventory.KeyID(key)}}
}

func TestWhatIsBelievedOfARecord(t *testing.T) {
	fresh := inventory.Proof{Key: key, Owner: owner}
	earlier := inventory.Proof{Key: key, Owner: owner, Earlier: true}
	corrupt := map[string]string{inventory.DataKey: "{"}
	for name, c := range map[string]struct {
		copies   []inventory.Copy
		by       inventory.Proof
		want     inventory.Inventory
		sealed   bool
		unsealed bool // entries are marked
		serial   int64
		rejected int
		fails    fault.Reason
		says     string
	}{
		"there is none":                           {copies: kept(nil, nil), by: fresh},
		"it was lost":                             {copies: kept(nil, nil), by: anchored(7), serial: 7},
		"both are good":                           {copies: kept(sealed(first, key, 3), sealed(first, key, 3)), by: anchored(3), want: first, sealed: true, serial: 3},
		"newer than the status: killed":           {copies: kept(sealed(first, key, 5), sealed(first, key, 5)), by: anchored(3), want: first, sealed: true, serial: 5},
		"one written: killed":                     {copies: kept(sealed(first, key, 3), sealed(second, key, 4)), by: anchored(3), want: second, sealed: true, serial: 4},
		"one lost":                                {copies: kept(nil, sealed(second, key, 4)), by: anchored(3), want: second, sealed: true, serial: 4},
		"the first is forged":                     {copies: kept(bare(forged), sealed(second, key, 4)), by: anchored(4), want: second, sealed: true, serial: 4, rejected: 1},
		"the copy is forged":                      {copies: kept(sealed(second, key, 4), sealed(forged, otherKey, 9)), by: anchored(4), want: second, sealed: true, serial: 4, rejected: 1},
		"one is corrupt":                          {copies: kept(corrupt, sealed(second, key, 4)), by: anchored(4), want: second, sealed: true, serial: 4, rejected: 1},
		"both are forged":                         {copies: kept(bare(forged), bare(forged)), by: anchored(4), fails: fault.Untrusted, says: "somebody else has written it", serial: 4},
		"sealed for another owner":                {copies: kept(inventory.Sealer{Key: key, Owner: "vdo/vdo-inventory-x", Serial: 4}.Data(first), nil), by: anchored(4), fails: fault.Untrusted, says: "seal", serial: 4},
		"the number was raised":                   {copies: kept(with(sealed(first, key, 4), inventory.SealKey, "4", "5"), nil), by: anchored(5), fails: fault.Untrusted, says: "seal", serial: 5},
		"a byte was changed":                      {copies: kept(with(sealed(first, key, 4), inventory.DataKey, `"a"`, `"b"`), nil), by: anchored(4), fails: fault.Untrusted, says: "seal", serial: 4},
		"put back later":                          {copies: kept(sealed(first, key, 3), sealed(first, key, 3)), by: anchored(4), fails: fault.Untrusted, says: "it is older than the status: it is number 3, and the status knows number 4", serial: 4},
		"one put back later":                      {copies: kept(sealed(first, key, 3), sealed(second, key, 4)), by: anchored(4), want: second, sealed: true, serial: 4},
		"forged without objects: as lost":         {copies: kept(bare(inventory.Of()), nil), by: anchored(4), serial: 4},
		"forged and corrupt":                      {copies: kept(bare(forged), corrupt), by: anchored(4), fails: fault.Untrusted, says: "somebody else", serial: 4},
		"both corrupt":                            {copies: kept(corrupt, corrupt), by: anchored(4), fails: fault.Corrupt, says: "no inventory", serial: 4},
		"from a program without seals":            {copies: kept(bare(second), bare(second)), by: inventory.Proof{Owner: owner, Earlier: true}, want: second, unsealed: true},
		"the same, key at hand":                   {copies: kept(bare(second), bare(second)), by: earlier, want: second, unsealed: true},
		"the status is lost":                      {copies: kept(sealed(second, key, 4), sealed(second, key, 4)), by: fresh, want: second, sealed: true, serial: 4},
		"the status is lost, and one is forged":   {copies: kept(bare(forged), sealed(second, key, 4)), by: fresh, want: second, sealed: true, serial: 4, rejected: 1},
		"the key is lost":                         {copies: kept(sealed(second, otherKey, 4), nil), by: inventory.Proof{Owner: owner, Anchor: anchored(4).Anchor, Earlier: true}, want: second, unsealed: true},
		"the key was made anew":                   {copies: kept(sealed(second, otherKey, 4), nil), by: inventory.Proof{Key: key, Owner: owner, Anchor: inventory.Anchor{Serial: 4, KeyID: inventory.KeyID(otherKey)}, Earlier: true}, want: second, unsealed: true},
		"without a seal the first one is taken":   {copies: kept(bare(first), bare(second)), by: earlier, want: first, unsealed: true},
		"without a seal, the first one corrupt":   {copies: kept(corrupt, bare(second)), by: earlier, want: second, unsealed: true},
		"without a seal, the first one not there": {copies: kept(nil, bare(second)), by: earlier, want: second, unsealed: true},
		"without a seal, corrupt":                 {copies: kept(corrupt, nil), by: fresh, fails: fault.Corrupt, says: "no inventory"},
		"put there before anything was installed": {copies: kept(bare(second), bare(second)), by: fresh, rejected: 2},
		"one put there before":                    {copies: kept(nil, sealed(second, otherKey, 9)), by: fresh, rejected: 1},
		"put there, and there is no key":          {copies: kept(bare(second), nil), by: inventory.Proof{Owner: owner}, rejected: 1},
		"put there beside the operator's":         {copies: kept(bare(forged), sealed(second, key, 1)), by: fresh, want: second, sealed: true, serial: 1, rejected: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := inventory.Believe(c.copies, c.by)
			require.Equal(t, c.serial, got.Serial)
			if c.fails != "" {
				require.Equal(t, c.fails, fault.ReasonOf(err), "%v", err)
				require.ErrorContains(t, err, c.says)
				require.NotEmpty(t, fault.HintOf(err))
				require.Zero(t, got.Len(), "nothing is believed")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.sealed, got.Sealed)
			require.Len(t, got.Rejected, c.rejected)
			var want []inventory.Entry
			for _, e := range c.want.Entries() {
				e.Unsealed = c.unsealed
				want = append(want, e)
			}
			require.ElementsMatch(t, want, got.Entries())
		})
	}
}

// What a later program has sealed is not lost, though it cannot be read; what anybody else has
// made unreadable is no such record.
func TestARecordOfALaterProgramIsKnown(t *testing.T) {
	later := sealed(inventory.Of(inventory.Entry{}), key, 5)
	for name, c := range map[string]struct {
		copies []inventory.Copy
		by     inventory.Proof
		later  bool
	}{
		"both":                 {kept(later, later), anchored(4), true},
		"one, beside a forged": {kept(bare(forged), later), anchored(4), true},
		"the status is lost":   {kept(later, later), inventory.Proof{Key: key, Owner: owner, Earlier: true}, true},
		"put back later":       {kept(later, later), anchored(6), false},
		"sealed by nobody":     {kept(bare(inventory.Of(inventory.Entry{})), nil), anchored(4), false},
		"with marks that somebody has put beside an earlier program's": {kept(map[string]string{
			inventory.DataKey: sealed(first, key, 5)[inventory.DataKey], inventory.MarksKey: "{",
			inventory.SealKey: without(sealed(first, key, 5), "bound")[inventory.SealKey]}, nil), anchored(4), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := inventory.Believe(c.copies, c.by)
			require.Error(t, err)
			require.Equal(t, c.later, got.Later)
		})
	}
}

// An operator that was paused while another one led does not put back what it knows.
func TestARecordIsNotWrittenOverByOneThatIsNotNewer(t *testing.T) {
	by := inventory.Sealer{Key: key, Owner: owner, Serial: 4}
	require.False(t, by.Outdated(nil))
	require.False(t, by.Outdated(sealed(first, key, 3)))
	require.True(t, by.Outdated(sealed(first, key, 4)))
	require.True(t, by.Outdated(sealed(first, key, 5)))
	require.False(t, by.Outdated(sealed(first, otherKey, 5)), "anybody could keep it from being written")
	require.False(t, by.Outdated(with(sealed(first, key, 3), inventory.SealKey, "3", "9")))
	require.False(t, inventory.Sealer{Owner: owner}.Outdated(sealed(first, key, 5)), "without a key nothing is known")
}

func TestTheIdentifierOfAKeySaysNothingOfIt(t *testing.T) {
	require.Empty(t, inventory.KeyID(nil))
	require.Len(t, inventory.KeyID(key), 16)
	require.NotEqual(t, inventory.KeyID(key), inventory.KeyID(otherKey))
	require.NotContains(t, sealed(first, key, 1)[inventory.SealKey], inventory.KeyID(key))
}

// Programs from before there were seals read the record: what they do not know is beside it.
func TestTheSealIsBesideTheRecord(t *testing.T) {
	data := sealed(first, key, 4)
	require.Equal(t, bare(first)[inventory.DataKey], data[inventory.DataKey])
	require.Regexp(t, `^\{"serial":4,"mac":"[0-9a-f]{64}","bound":"[0-9a-f]{64}"\}$`, data[inventory.SealKey])
}

// later is a record as a program writes it that knows of epochs.
func later(inv inventory.Inventory, uid string, epoch inventory.Epoch, serial int64) map[string]string {
	return inventory.Sealer{Key: key, Owner: owner, UID: uid, Epoch: epoch, Serial: serial}.Data(inv)
}

// without is a record without one of its keys, or its seal without a part.
func without(data map[string]string, what string) map[string]string {
	data[inventory.SealKey] = regexp.MustCompile(`,"`+what+`":"[^"]*"`).ReplaceAllString(data[inventory.SealKey], "")
	delete(data, what)
	return data
}

// A record is of one resource, and of the epoch that its status knows, or the one after that:
// numbers are given twice where an operator was killed before it wrote the status, and its
// records were deleted.
func TestARecordIsOfOneResourceAndEpoch(t *testing.T) {
	e1, e2, e3 := inventory.Epoch{ID: "e1"}, inventory.Epoch{ID: "e2", After: "e1"}, inventory.Epoch{ID: "e3", After: "e1"}
	proof := func(serial int64, epoch string) inventory.Proof {
		by := anchored(serial)
		by.UID, by.Anchor.Epoch, by.Earlier = "u", epoch, true
		return by
	}
	fresh := inventory.Proof{Key: key, Owner: owner, UID: "u"}
	marked := first.With(inventory.Entry{ID: inventory.ID{Key: inventory.Key{Kind: "Secret", Name: "s"}, Version: "v1"}, Driver: matrix.CSI, Unsealed: true})
	for name, c := range map[string]struct {
		copies []inventory.Copy
		by     inventory.Proof
		want   inventory.Inventory
		serial int64
		fails  string
	}{
		"of this epoch":                                  {kept(later(first, "u", e1, 4), nil), proof(4, "e1"), first, 4, ""},
		"made anew: killed":                              {kept(later(first, "u", e2, 4), nil), proof(4, "e1"), first, 4, ""},
		"made anew, and it is known":                     {kept(later(first, "u", e2, 4), nil), proof(4, "e2"), first, 4, ""},
		"put back since":                                 {kept(later(forged, "u", e1, 9), nil), proof(4, "e2"), first, 4, "made anew"},
		"made anew twice":                                {kept(later(forged, "u", e2, 9), nil), proof(4, "e3"), first, 4, "made anew"},
		"put back beside the newer":                      {kept(later(forged, "u", e1, 9), later(first, "u", e3, 4)), proof(4, "e1"), first, 4, ""},
		"of another resource":                            {kept(later(forged, "before", e1, 9), nil), proof(4, "e1"), first, 4, "seal"},
		"its epoch was changed":                          {kept(with(later(forged, "u", e1, 9), inventory.SealKey, "e1", "e2"), nil), proof(4, "e2"), first, 4, "seal"},
		"its marks are gone":                             {kept(without(later(marked, "u", e1, 9), inventory.MarksKey), nil), proof(4, "e1"), first, 4, "seal"},
		"so is what binds them":                          {kept(without(without(later(marked, "u", e1, 9), inventory.MarksKey), "bound"), nil), proof(4, "e1"), first, 4, "seal"},
		"with its marks":                                 {kept(later(marked, "u", e1, 4), nil), proof(4, "e1"), marked, 4, ""},
		"of an earlier program":                          {kept(without(later(first, "", inventory.Epoch{}, 4), "bound"), nil), proof(4, ""), first, 4, ""},
		"after an earlier program":                       {kept(later(first, "u", e1, 5), nil), proof(4, ""), first, 5, ""},
		"of another resource, and nothing was installed": {kept(later(forged, "before", e1, 9), nil), fresh, inventory.Of(), 0, ""},
		"the status is lost":                             {kept(later(first, "u", e1, 4), nil), fresh, first, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := inventory.Believe(c.copies, c.by)
			if c.fails != "" {
				require.Equal(t, fault.Untrusted, fault.ReasonOf(err), "%v", err)
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			require.True(t, got.Equal(c.want), "%v", got.Entries())
			require.Equal(t, c.serial, got.Serial)
			require.Equal(t, c.want.Len() > 0, got.Sealed)
		})
	}
}

// Marks are beside the record too: programs that do not know them read it.
func TestMarksAreBesideTheRecord(t *testing.T) {
	e := entry(matrix.CSI, "Deployment", "a", "csi@3.5.1")
	e.Unsealed = true
	marked := inventory.Of(e)
	require.Equal(t, bare(first)[inventory.DataKey], bare(marked)[inventory.DataKey])
	require.JSONEq(t, `[{"group":"apps","kind":"Deployment","namespace":"kube-system","name":"a"}]`, bare(marked)[inventory.MarksKey])
	require.False(t, marked.Equal(first), "it is written once the mark goes")
	require.NotContains(t, bare(first), inventory.MarksKey)
	_, err := inventory.Believe(kept(map[string]string{inventory.DataKey: bare(first)[inventory.DataKey], inventory.MarksKey: "{"}, nil), inventory.Proof{Earlier: true})
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
}

// What nodes have taken up is beside the record, since the operator before reads no record with a field
// that it does not know. An upgrade waits by it, so that what somebody writes there counts as nothing.
func TestWhatIsTakenUpIsBesideTheRecord(t *testing.T) {
	taken := first.WithMemory(inventory.Memory{ClusterID: "c", Taken: "u/1"})
	none := first.WithMemory(inventory.Memory{ClusterID: "c"})
	data := sealed(taken, key, 4)
	require.Equal(t, "u/1", data[inventory.TakenKey])
	require.Equal(t, sealed(none, key, 4)[inventory.DataKey], data[inventory.DataKey])
	require.False(t, taken.Equal(none), "it is written once it is known")
	require.NotContains(t, sealed(none, key, 4), inventory.TakenKey)
	require.NotContains(t, bare(taken), inventory.TakenKey)
	for name, c := range map[string]struct {
		data map[string]string
		want string
	}{
		"as it was written":               {sealed(taken, key, 4), "u/1"},
		"of a later set":                  {with(sealed(taken, key, 4), inventory.TakenKey, "1", "2"), ""},
		"it is gone":                      {without(sealed(taken, key, 4), inventory.TakenKey), ""},
		"by an operator that has no such": {map[string]string{inventory.DataKey: data[inventory.DataKey], inventory.SealKey: sealed(none, key, 4)[inventory.SealKey], inventory.TakenKey: "u/1"}, ""},
	} {
		got, err := inventory.Believe(kept(c.data, c.data), anchored(4))
		require.NoError(t, err, name)
		require.True(t, got.Sealed && got.Whole, name)
		require.Equal(t, c.want, got.Memory().Taken, name)
		require.Equal(t, 1, got.Len(), name)
	}
	whole, spoilt := sealed(taken, key, 4), with(sealed(taken, key, 4), inventory.TakenKey, "1", "2")
	for _, copies := range [][]inventory.Copy{kept(whole, spoilt), kept(spoilt, whole), kept(without(sealed(taken, key, 4), inventory.TakenKey), whole)} {
		got, err := inventory.Believe(copies, anchored(4))
		require.NoError(t, err)
		require.False(t, got.Whole, "it is written again")
		require.Equal(t, "u/1", got.Memory().Taken)
	}
}

// Of epochs the later one counts, whatever the number.
func TestARecordOfALaterEpochIsNotWrittenOver(t *testing.T) {
	e1, e2 := inventory.Epoch{ID: "e1"}, inventory.Epoch{ID: "e2", After: "e1"}
	by := inventory.Sealer{Key: key, Owner: owner, UID: "u", Epoch: e1, Serial: 9}
	require.True(t, by.Outdated(later(first, "u", e2, 4)), "an operator that leads since has made it anew")
	require.True(t, by.Outdated(later(first, "u", e1, 9)))
	by.Epoch, by.Serial = e2, 4
	require.False(t, by.Outdated(later(first, "u", e1, 9)), "somebody has put it back")
	require.False(t, by.Outdated(without(later(first, "u", e2, 9), "bound")), "likewise")
	require.True(t, by.Outdated(later(first, "another", e2, 9)), "it is of another resource of the name")
	by.Epoch = e1
	require.True(t, by.Outdated(later(first, "u", inventory.Epoch{ID: "e3", After: "e2"}, 4)), "the records were lost twice since")
}

func FuzzBelieve(f *testing.F) {
	good := sealed(second, key, 4)
	f.Add(good[inventory.DataKey], good[inventory.SealKey])
	f.Add(`{"apiVersion":"vdo.vmware.com/inventory/v1","objects":[]}`, `{"serial":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, record, seal string) {
		data := map[string]string{inventory.DataKey: record, inventory.SealKey: seal}
		got, err := inventory.Believe(kept(data, data), anchored(4))
		switch {
		case err == nil && record == good[inventory.DataKey]:
		case err == nil:
			require.Zero(t, got.Len(), "only what the operator has sealed is believed")
		default:
			require.NotEmpty(t, fault.ReasonOf(err))
		}
	})
}
