// Hashes and encrypts through AF_ALG and checks the answers: a program that knows nothing of Sealane.
// CGO_ENABLED=0 go build -o afalg-go afalg.go makes a static binary whose system calls go around libc.
//
//	afalg-go               known answers: SHA-256 of "abc", AES-128-CBC of RFC 3602
//	afalg-go sha256 FILE   prints the file's digest as sha256sum does
//
// Exit status: 0 all right, 1 a wrong answer, 2 AF_ALG could not be used.
package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

const (
	afALG     = 38
	solALG    = 279
	setKey    = 1
	setIV     = 2
	setOp     = 3
	msgMore   = 0x8000
	opEncrypt = 1
)

func die(what string, err error) {
	fmt.Fprintf(os.Stderr, "afalg-go: %s: %v\n", what, err)
	os.Exit(2)
}

// openOp binds a socket, sets its key and returns an operation socket.
func openOp(kind, name string, key []byte) int {
	tfm, err := syscall.Socket(afALG, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		die("socket", err)
	}
	defer syscall.Close(tfm)
	var addr [88]byte
	binary.LittleEndian.PutUint16(addr[:], afALG)
	copy(addr[2:15], kind)
	copy(addr[24:87], name)
	if _, _, e := syscall.Syscall(syscall.SYS_BIND, uintptr(tfm), uintptr(unsafe.Pointer(&addr)), 88); e != 0 {
		die("bind "+name, e)
	}
	if key != nil {
		p := uintptr(unsafe.Pointer(&key[0]))
		if _, _, e := syscall.Syscall6(syscall.SYS_SETSOCKOPT, uintptr(tfm), solALG, setKey, p, uintptr(len(key)), 0); e != 0 {
			die("ALG_SET_KEY", e)
		}
	}
	op, _, e := syscall.Syscall6(syscall.SYS_ACCEPT4, uintptr(tfm), 0, 0, 0, 0, 0)
	if e != 0 {
		die("accept", e)
	}
	return int(op)
}

func send(op int, data []byte, flags int) {
	var p unsafe.Pointer
	if len(data) > 0 {
		p = unsafe.Pointer(&data[0])
	}
	n, _, e := syscall.Syscall6(syscall.SYS_SENDTO, uintptr(op), uintptr(p), uintptr(len(data)), uintptr(flags), 0, 0)
	if e != 0 {
		die("send", e)
	}
	if int(n) != len(data) {
		die("send", io.ErrShortWrite)
	}
}

func sendOp(op int, direction uint32, iv, text []byte) {
	control := make([]byte, syscall.CmsgSpace(4)+syscall.CmsgSpace(4+len(iv)))
	first := (*syscall.Cmsghdr)(unsafe.Pointer(&control[0]))
	first.Level, first.Type = solALG, setOp
	first.SetLen(syscall.CmsgLen(4))
	binary.LittleEndian.PutUint32(control[syscall.CmsgLen(0):], direction)
	at := syscall.CmsgSpace(4)
	second := (*syscall.Cmsghdr)(unsafe.Pointer(&control[at]))
	second.Level, second.Type = solALG, setIV
	second.SetLen(syscall.CmsgLen(4 + len(iv)))
	binary.LittleEndian.PutUint32(control[at+syscall.CmsgLen(0):], uint32(len(iv)))
	copy(control[at+syscall.CmsgLen(4):], iv)
	if err := syscall.Sendmsg(op, text, control, nil, 0); err != nil {
		die("sendmsg", err)
	}
}

func receive(op, length int) []byte {
	out := make([]byte, length)
	n, err := syscall.Read(op, out)
	if err != nil {
		die("read", err)
	}
	return out[:n]
}

func unhex(text string) []byte {
	out, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return out
}

var wrong bool

func check(what string, got []byte, want string) {
	verdict := "ok"
	if hex.EncodeToString(got) != want {
		verdict, wrong = "WRONG", true
	}
	fmt.Printf("%-32s %s\n", what, verdict)
}

func knownAnswers() {
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	op := openOp("hash", "sha256", nil)
	send(op, []byte("a"), msgMore)
	send(op, []byte("bc"), 0)
	check("sha256", receive(op, 32), abc)
	syscall.Close(op)

	// RFC 3602, case 2.
	text := make([]byte, 32)
	for i := range text {
		text[i] = byte(i)
	}
	op = openOp("skcipher", "cbc(aes)", unhex("c286696d887c9aa0611bbb3e2025a45a"))
	sendOp(op, opEncrypt, unhex("562e17996d093d28ddb3ba695a2e6f58"), text)
	check("cbc(aes)", receive(op, 32), "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1")
	syscall.Close(op)

	// Many goroutines: the runtime moves them between threads as it likes.
	var wait sync.WaitGroup
	digests := make([][]byte, 16)
	for i := range digests {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			op := openOp("hash", "sha256", nil)
			defer syscall.Close(op)
			for n := 0; n < 20; n++ {
				send(op, []byte("abc"), 0)
				digests[i] = receive(op, 32)
			}
		}(i)
	}
	wait.Wait()
	same := true
	for _, digest := range digests {
		same = same && hex.EncodeToString(digest) == abc
	}
	got := unhex(abc)
	if !same {
		got = nil
	}
	check("sha256 in 16 goroutines", got, abc)
}

func sha256File(path string) {
	file, err := os.Open(path)
	if err != nil {
		die("open", err)
	}
	op := openOp("hash", "sha256", nil)
	buf := make([]byte, 65536)
	for {
		n, err := file.Read(buf)
		if n > 0 {
			send(op, buf[:n], msgMore)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			die("read", err)
		}
	}
	fmt.Printf("%x  %s\n", receive(op, 32), path)
}

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "sha256":
		sha256File(os.Args[2])
	case len(os.Args) == 1:
		knownAnswers()
	default:
		fmt.Fprintln(os.Stderr, "usage: afalg-go [sha256 FILE]")
		os.Exit(2)
	}
	if wrong {
		os.Exit(1)
	}
}
