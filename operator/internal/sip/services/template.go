package services

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/template/parse"
)

// filled returns an administrator's template with the ports and hosts, and sets the hash to the template's; "" without
// one. It has the form of the original SIP operator's.
func (r *rendering) filled() (string, error) {
	name := string(r.Kind) + ".cfg"
	if r.in.Templates == nil {
		return "", nil
	}
	text, err := fs.ReadFile(r.in.Templates, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var ports, servers []any
	for _, p := range r.service.Ports {
		ports = append(ports, map[string]any{"Name": p.Name, "ContainerPort": p.TargetPort.IntVal})
	}
	for _, h := range r.hosts {
		if len(h.Addresses) > 0 {
			servers = append(servers, map[string]any{"Name": h.Name + "." + h.Namespace, "IP": h.Addresses[0].String()})
		}
	}
	root := map[string]any{"ContainerPorts": ports, "Servers": servers}
	trees, errOf := parse.Parse(name, string(text), "", "")
	f := filling{tree: trees[name], variables: map[string]any{"$": root}}
	if err = errors.Join(err, errOf); err == nil && f.tree != nil { // else it is empty
		err = f.list(f.tree.Root, root)
	}
	if err != nil {
		return "", r.wrong("", err.Error(),
			"correct the ConfigMap "+strings.ToLower(string(r.Kind))+" in the operator's namespace, or delete it")
	}
	r.hash = hashed(nil, text)
	return f.out.String(), nil
}

// filling executes a template's ranges, variables and fields. Package text/template would keep all methods of all
// types in the program, and so make it much larger.
type filling struct {
	out       strings.Builder
	tree      *parse.Tree
	variables map[string]any
}

func (f *filling) list(l *parse.ListNode, dot any) error {
	for _, n := range l.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.TextNode:
			f.out.Write(n.Text)
		case *parse.CommentNode:
		case *parse.ActionNode:
			var v any
			if v, err = f.value(n.Pipe, dot); len(n.Pipe.Decl) == 0 && err == nil {
				fmt.Fprint(&f.out, v)
			}
		case *parse.RangeNode:
			err = f.each(n, dot)
		default:
			err = f.wrong(n, "only ranges, variables and fields are supported")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *filling) each(n *parse.RangeNode, dot any) error {
	v, err := f.value(n.Pipe, dot)
	items, is := v.([]any)
	if err == nil && (!is || n.ElseList != nil || len(n.Pipe.Decl) > 1) {
		err = f.wrong(n, "this range is not supported")
	}
	for i := 0; i < len(items) && err == nil; i++ {
		for _, d := range n.Pipe.Decl {
			f.variables[d.Ident[0]] = items[i]
		}
		err = f.list(n.List, items[i])
	}
	return err
}

// value returns a field or a variable, and sets the variable that a pipeline declares.
func (f *filling) value(p *parse.PipeNode, dot any) (any, error) {
	v, fields := dot, []string(nil)
	switch arg := p.Cmds[0].Args[0].(type) {
	case *parse.DotNode:
	case *parse.FieldNode:
		fields = arg.Ident
	case *parse.VariableNode:
		v, fields = f.variables[arg.Ident[0]], arg.Ident[1:]
	default:
		v = nil
	}
	for _, name := range fields {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	if v == nil || len(p.Cmds) > 1 || len(p.Cmds[0].Args) > 1 {
		return nil, f.wrong(p, "{{%s}} is no field or variable here", p)
	}
	for _, d := range p.Decl {
		f.variables[d.Ident[0]] = v
	}
	return v, nil
}

func (f *filling) wrong(n parse.Node, format string, args ...any) error {
	at, _ := f.tree.ErrorContext(n)
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}
