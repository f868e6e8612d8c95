package publish

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"text/template"
)

// text is made for each message.
type text func(fields) ([]byte, error)

// parse reads a template, and tries it: a wrong one is found before anything is made.
func parse(name, content string) (text, error) {
	t, err := template.New(name).Parse(content)
	execute := func(with fields) ([]byte, error) {
		var b bytes.Buffer
		err := t.Execute(&b, with)
		return b.Bytes(), err
	}
	if err == nil {
		_, err = execute(fields{Count: 1})
	}
	if err != nil {
		return nil, fmt.Errorf("%w; SUBJECT and BODY are templates: {{.Count}}, {{.Time}}, {{.UnixNano}}, {{.Random N}}", err)
	}
	return execute, nil
}

// fields are what a template can use.
type fields struct {
	Count    int // of the message, from 1
	Time     string
	UnixNano int64
}

// Random is a text of n letters.
func (fields) Random(n int) (string, error) {
	const most = 1 << 20
	if n < 0 || n > most {
		return "", fmt.Errorf("Random %d is not in 0..%d letters", n, most)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(rand.IntN(26))
	}
	return string(b), nil
}
