package vdoctl

import (
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
)

// single quotes a word for a POSIX shell.
func single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// headline says which vCenter and account it is about, and what that would lose.
func headline(l *lines, p *usersPlan) {
	l.printf("\n# %s: %s", p.VCenter, p.Principal)
	if lost := p.lost(); lost != "" {
		l.printf("# warning: %s", oneLine(lost))
	}
}

// oneLine keeps a name from ending a comment.
func oneLine(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "\r", " "), "\n", " ") }

// govcScript writes plans as a shell script. What is there as it has to be is left out, so
// that it can be run again from a new plan; permissions that are not needed are named in
// comments alone.
func govcScript(w io.Writer, plans []usersPlan) error {
	l := &lines{w: w, script: true}
	l.printf("#!/bin/sh\n# Log in by GOVC_USERNAME and GOVC_PASSWORD as who may change roles and permissions. A private\n# authority of the vCenter's certificate: GOVC_TLS_CA_CERTS=FILE.\nset -eu")
	for _, p := range plans {
		headline(l, &p)
		l.printf("export GOVC_URL=%s", single(p.Server))
		for _, r := range p.Roles {
			switch r.State {
			case privileges.Create:
				l.printf("govc role.create %s %s", r.Name, strings.Join(r.Privileges, " "))
			case privileges.Change:
				l.printf("govc role.update -a %s %s", r.Name, strings.Join(r.Add, " "))
			}
		}
		for _, x := range p.Permissions {
			if x.State != privileges.Keep {
				l.printf("govc permissions.set -principal %s -role %s -propagate=%t %s", single(p.Principal), x.Role, x.Propagate, govcObject(x))
			}
		}
		if p.done() {
			l.printf("# nothing to do")
		}
		for _, where := range slices.Sorted(maps.Keys(p.NotNeeded)) {
			l.printf("# not needed: govc permissions.remove -principal %s %s", single(p.Principal), single(oneLine(literal.Replace(where))))
		}
	}
	return l.err
}

// done tells whether all of a plan is there as it has to be.
func (p *usersPlan) done() bool {
	return !slices.ContainsFunc(p.Roles, func(r privileges.PlannedRole) bool { return r.State != privileges.Keep }) &&
		!slices.ContainsFunc(p.Permissions, func(x privileges.PlannedPermission) bool { return x.State != privileges.Keep })
}

// govcObject names an object for govc: by its path, or by its id where govc would find others
// too by its path, which it takes for a pattern, or the path is not printed as it is.
func govcObject(x privileges.PlannedPermission) string {
	if strings.ContainsAny(x.Path, `*?[\`) || x.Path != path.Clean(x.Path) || strings.Contains(x.Path, "/...") || x.Path != oneLine(command.Printable(x.Path)) {
		return "-i " + single(strings.Replace(x.ID, "-", ":", 1)) + " # " + oneLine(x.Path)
	}
	return single(x.Path)
}

// literal keeps govc from taking a path for a pattern.
var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// quotedPS quotes a word for PowerShell.
func quotedPS(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// powercliScript writes plans as a PowerShell script.
func powercliScript(w io.Writer, plans []usersPlan) error {
	l := &lines{w: w, script: true}
	l.printf("#Requires -Modules VMware.VimAutomation.Core\n$ErrorActionPreference = 'Stop'")
	for _, p := range plans {
		headline(l, &p)
		l.printf("$vc = Connect-VIServer -Server %s", quotedPS(p.Server))
		for _, r := range p.Roles {
			switch r.State {
			case privileges.Create:
				l.printf("New-VIRole -Server $vc -Name %s -Privilege %s | Out-Null", quotedPS(r.Name), privilegesPS(r.Privileges))
			case privileges.Change:
				changeRolePS(l, r)
			}
		}
		for _, x := range p.Permissions {
			permissionPS(l, p.Principal, x)
		}
		if p.done() {
			l.printf("# nothing to do")
		}
		l.printf("Disconnect-VIServer -Server $vc -Confirm:$false")
	}
	return l.err
}

func privilegesPS(ids []string) string {
	quoted := make([]string, len(ids))
	for i, id := range ids {
		quoted[i] = quotedPS(id)
	}
	return "(Get-VIPrivilege -Server $vc -Id " + strings.Join(quoted, ", ") + ")"
}

func changeRolePS(l *lines, r privileges.PlannedRole) {
	if len(r.Add) > 0 {
		l.printf("Set-VIRole -Server $vc -Role %s -AddPrivilege %s | Out-Null", quotedPS(r.Name), privilegesPS(r.Add))
	}
}

func permissionPS(l *lines, principal string, x privileges.PlannedPermission) {
	role := "-Role (Get-VIRole -Server $vc -Name " + quotedPS(x.Role) + ") -Propagate:$" + strconv.FormatBool(x.Propagate)
	switch x.State {
	case privileges.Create:
		l.printf("New-VIPermission -Entity %s -Principal %s %s | Out-Null", entityPS(x.ID), quotedPS(principal), role)
	case privileges.Change:
		l.printf("Get-VIPermission -Server $vc -Entity %s -Principal %s | Where-Object EntityId -eq %s | Set-VIPermission %s | Out-Null",
			entityPS(x.ID), quotedPS(principal), quotedPS(x.ID), role)
	}
}

// entityPS gets an object by its id: names need not be unique.
func entityPS(id string) string {
	get := "Get-Inventory"
	if strings.HasPrefix(id, "Datastore-") {
		get = "Get-Datastore"
	}
	return "(" + get + " -Server $vc -Id " + quotedPS(id) + ")"
}
