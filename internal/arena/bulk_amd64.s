#include "textflag.h"

// XXH3 over whole blocks of 1,024 bytes: 16 stripes of 64 bytes, then a
// scramble. The eight lanes of the state are Y0 and Y1. A stripe is Y2 and Y3.
// SI is the source, DI the destination, DX the secret, CX the blocks left.

DATA prime<>+0(SB)/8, $0x9E3779B1
DATA prime<>+8(SB)/8, $0x9E3779B1
DATA prime<>+16(SB)/8, $0x9E3779B1
DATA prime<>+24(SB)/8, $0x9E3779B1
GLOBL prime<>(SB), RODATA|NOPTR, $32

// Where a stripe goes: nowhere, through the caches, past them.
#define NOWHERE(at)
#define CACHED(at) \
	VMOVDQU Y2, at(DI) \
	VMOVDQU Y3, at+32(DI)
#define PAST(at) \
	VMOVNTDQ Y2, at(DI) \
	VMOVNTDQ Y3, at+32(DI)

// STRIPE loads stripe i, stores it, and adds to each lane the product of the
// halves of its own word, mixed with the secret, and its neighbour's word.
#define STRIPE(i, STORE) \
	VMOVDQU 64*i(SI), Y2 \
	VMOVDQU 64*i+32(SI), Y3 \
	PREFETCHT0 64*i+4096(SI) \
	STORE(64*i) \
	VPXOR 8*i(DX), Y2, Y4 \
	VPXOR 8*i+32(DX), Y3, Y5 \
	VPSHUFD $0x31, Y4, Y6 \
	VPSHUFD $0x31, Y5, Y7 \
	VPMULUDQ Y4, Y6, Y4 \
	VPMULUDQ Y5, Y7, Y5 \
	VPSHUFD $0x4E, Y2, Y2 \
	VPSHUFD $0x4E, Y3, Y3 \
	VPADDQ Y4, Y0, Y0 \
	VPADDQ Y5, Y1, Y1 \
	VPADDQ Y2, Y0, Y0 \
	VPADDQ Y3, Y1, Y1

#define FOUR(i, STORE) \
	STRIPE((i), STORE) \
	STRIPE((i+1), STORE) \
	STRIPE((i+2), STORE) \
	STRIPE((i+3), STORE)

// SCRAMBLE makes (lane ^ lane>>47 ^ secret) * prime of four lanes. The product
// is 64 by 32 bits, in two of 32 by 32.
#define SCRAMBLE(lanes, at) \
	VPSRLQ $47, lanes, Y2 \
	VPXOR lanes, Y2, Y2 \
	VPXOR at(DX), Y2, Y2 \
	VPSHUFD $0xF5, Y2, Y3 \
	VPMULUDQ Y8, Y2, Y2 \
	VPMULUDQ Y8, Y3, Y3 \
	VPSLLQ $32, Y3, Y3 \
	VPADDQ Y2, Y3, lanes

#define BLOCK(STORE) \
	FOUR(0, STORE) \
	FOUR(4, STORE) \
	FOUR(8, STORE) \
	FOUR(12, STORE) \
	SCRAMBLE(Y0, 128) \
	SCRAMBLE(Y1, 160) \
	ADDQ $1024, SI

#define BEGIN \
	VMOVDQU (AX), Y0 \
	VMOVDQU 32(AX), Y1 \
	VMOVDQU prime<>(SB), Y8

#define END \
	VMOVDQU Y0, (AX) \
	VMOVDQU Y1, 32(AX) \
	VZEROUPPER \
	RET

// func hashBlocks(lanes *[8]uint64, secret *[192]byte, src *byte, n int)
TEXT ·hashBlocks(SB), NOSPLIT, $0-32
	MOVQ lanes+0(FP), AX
	MOVQ secret+8(FP), DX
	MOVQ src+16(FP), SI
	MOVQ n+24(FP), CX
	BEGIN
hashNext:
	BLOCK(NOWHERE)
	DECQ CX
	JNZ  hashNext
	END

// func copyBlocks(lanes *[8]uint64, secret *[192]byte, dst, src *byte, n int)
TEXT ·copyBlocks(SB), NOSPLIT, $0-40
	MOVQ lanes+0(FP), AX
	MOVQ secret+8(FP), DX
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	MOVQ n+32(FP), CX
	BEGIN
copyNext:
	BLOCK(CACHED)
	ADDQ $1024, DI
	DECQ CX
	JNZ  copyNext
	END

// func streamBlocks(lanes *[8]uint64, secret *[192]byte, dst, src *byte, n int)
TEXT ·streamBlocks(SB), NOSPLIT, $0-40
	MOVQ lanes+0(FP), AX
	MOVQ secret+8(FP), DX
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	MOVQ n+32(FP), CX
	BEGIN
streamNext:
	BLOCK(PAST)
	ADDQ $1024, DI
	DECQ CX
	JNZ  streamNext
	SFENCE // or another processor could see later stores first
	END

// func streamLines(dst, src *byte, n int)
// No line is asked for ahead: the processor sees where a plain copy goes, and was
// 8 % slower with that (Zen 5).
TEXT ·streamLines(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SHRQ $1, CX
	JNC  twoLeft
	VMOVDQU (SI), Y2
	VMOVDQU 32(SI), Y3
	PAST(0)
	ADDQ $64, SI
	ADDQ $64, DI
twoLeft:
	TESTQ CX, CX
	JZ   linesDone
twoLines:
	VMOVDQU (SI), Y2
	VMOVDQU 32(SI), Y3
	VMOVDQU 64(SI), Y4
	VMOVDQU 96(SI), Y5
	PAST(0)
	VMOVNTDQ Y4, 64(DI)
	VMOVNTDQ Y5, 96(DI)
	ADDQ $128, SI
	ADDQ $128, DI
	DECQ CX
	JNZ  twoLines
linesDone:
	SFENCE // as above
	VZEROUPPER
	RET

// func isAMD() bool
TEXT ·isAMD(SB), NOSPLIT, $0-1
	XORL AX, AX
	CPUID
	CMPL BX, $0x68747541 // "Auth"
	JNE  other
	CMPL DX, $0x69746E65 // "enti"
	JNE  other
	CMPL CX, $0x444D4163 // "cAMD"
other:
	SETEQ ret+0(FP)
	RET
