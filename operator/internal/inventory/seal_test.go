package inventory_test

import (
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
	require.Regexp(t, `^\{"serial":4,"mac":"[0-9a-f]{64}"\}$`, data[inventory.SealKey])
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
