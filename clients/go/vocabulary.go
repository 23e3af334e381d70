package constraintd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc"

	pb "github.com/constraintd/constraintd/clients/go/gen/constraintd/v1"
)

// chunkBytes of a file go into one upload message.
const chunkBytes = 1 << 20

// VocabularyFormat says what kind of file a tokenizer is.
type VocabularyFormat = pb.VocabularyFormat

// The formats of tokenizers.
const (
	// TokenizerJSON is a Hugging Face tokenizer.json.
	TokenizerJSON = pb.VocabularyFormat_VOCABULARY_FORMAT_TOKENIZER_JSON
	// SentencePiece is a SentencePiece model file.
	SentencePiece = pb.VocabularyFormat_VOCABULARY_FORMAT_SENTENCEPIECE
	// PackedTable is a plain table of token bytes; see [Daemon.RegisterTokenTable].
	PackedTable = pb.VocabularyFormat_VOCABULARY_FORMAT_TOKEN_TABLE
	// Tiktoken is a file of tiktoken ranks.
	Tiktoken = pb.VocabularyFormat_VOCABULARY_FORMAT_TIKTOKEN
	// Tekken is Mistral's tekken.json.
	Tekken = pb.VocabularyFormat_VOCABULARY_FORMAT_TEKKEN
)

// Vocabulary is a registered vocabulary.
type Vocabulary struct {
	// ID is a hash of its content, 64 hex digits.
	ID string
	// TokenCount is the highest token id + 1, holes included.
	TokenCount uint32
	// LogitsWidth is the columns of the model's logits row.
	LogitsWidth uint32
	// EOGIDs are the end-of-generation ids, ascending.
	EOGIDs []uint32
	// BOSID is the beginning-of-sequence id; nil if the tokenizer names none.
	BOSID *uint32
	// HasEncoder tells whether the daemon can turn text into its tokens.
	HasEncoder bool
}

// VocabularyUpload is a vocabulary as files.
type VocabularyUpload struct {
	// Format of Tokenizer. Required.
	Format VocabularyFormat
	// Tokenizer is the file's content. Required.
	Tokenizer []byte
	// LogitsWidth is the columns of the model's logits row. Default (0): the highest id + 1.
	LogitsWidth uint32
	// EOGIDs end a generation. Default: those of the files.
	EOGIDs []uint32
	// GenerationConfig and TokenizerConfig are the model's generation_config.json and tokenizer_config.json. Default:
	// none.
	GenerationConfig, TokenizerConfig []byte
	// Special gives special tokens their spelling, and Pattern cuts text before it is encoded: for Tiktoken alone, whose
	// file has neither.
	Special map[uint32]string
	Pattern string
}

// RegisterVocabulary uploads a vocabulary. Registering twice is free.
func (d *Daemon) RegisterVocabulary(ctx context.Context, upload VocabularyUpload) (*Vocabulary, error) {
	return call(ctx, d.settings, d.targets, func(ctx context.Context, connection *grpc.ClientConn) (*Vocabulary, error) {
		stream, err := pb.NewConstraintServiceClient(connection).RegisterVocabulary(ctx)
		if err != nil {
			return nil, err
		}
		// io.EOF means that the server has answered already; CloseAndRecv gives its answer.
		if err := upload.send(stream.Send); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		answer, err := stream.CloseAndRecv()
		if err != nil {
			return nil, err
		}
		return vocabularyOf(answer.GetVocabulary()), nil
	})
}

func (u *VocabularyUpload) send(send func(*pb.RegisterVocabularyRequest) error) error {
	header := &pb.VocabularyHeader{Format: u.Format, EogIds: u.EOGIDs, Pattern: []byte(u.Pattern)}
	if u.LogitsWidth != 0 {
		header.LogitsWidth = &u.LogitsWidth
	}
	for _, id := range slices.Sorted(maps.Keys(u.Special)) {
		header.SpecialTokens = append(header.SpecialTokens, &pb.SpecialToken{Id: id, Spelling: []byte(u.Special[id])})
	}
	err := send(&pb.RegisterVocabularyRequest{Part: &pb.RegisterVocabularyRequest_Header{Header: header}})
	for _, file := range []struct {
		kind pb.VocabularyFile
		data []byte
	}{
		{pb.VocabularyFile_VOCABULARY_FILE_TOKENIZER, u.Tokenizer},
		{pb.VocabularyFile_VOCABULARY_FILE_GENERATION_CONFIG, u.GenerationConfig},
		{pb.VocabularyFile_VOCABULARY_FILE_TOKENIZER_CONFIG, u.TokenizerConfig},
	} {
		chunks := slices.Collect(slices.Chunk(file.data, chunkBytes))
		if file.data != nil && len(chunks) == 0 {
			chunks = [][]byte{{}} // "there, and empty" is not "not there"
		}
		for _, chunk := range chunks {
			if err != nil {
				return err
			}
			err = send(&pb.RegisterVocabularyRequest{Part: &pb.RegisterVocabularyRequest_Chunk{
				Chunk: &pb.VocabularyChunk{File: file.kind, Data: chunk},
			}})
		}
	}
	return err
}

// TokenTable is what every token id spells.
type TokenTable struct {
	// Tokens has the bytes of each id from 0 on; nil for ids that no token has. Those of special tokens are not looked at.
	Tokens [][]byte
	// Special gives special tokens, which spell nothing, their names.
	Special map[uint32]string
}

// RegisterTokenTable registers a plain table. logitsWidth 0 is the highest id + 1.
func (d *Daemon) RegisterTokenTable(
	ctx context.Context, table TokenTable, eogIDs []uint32, logitsWidth uint32,
) (*Vocabulary, error) {
	return d.RegisterVocabulary(ctx, VocabularyUpload{
		Format: PackedTable, Tokenizer: table.pack(), EOGIDs: eogIDs, LogitsWidth: logitsWidth,
	})
}

// TokenTable gives a registered vocabulary's table, so that text can be shown without a tokenizer.
func (d *Daemon) TokenTable(ctx context.Context, vocabularyID string) (*TokenTable, *Vocabulary, error) {
	type both struct {
		table      *TokenTable
		vocabulary *Vocabulary
	}
	found, err := call(ctx, d.settings, d.targets, func(ctx context.Context, connection *grpc.ClientConn) (both, error) {
		request := &pb.GetVocabularyRequest{VocabularyId: vocabularyID}
		stream, err := pb.NewConstraintServiceClient(connection).GetVocabulary(ctx, request)
		if err != nil {
			return both{}, err
		}
		var packed []byte
		var vocabulary *Vocabulary
		for {
			message, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return both{}, err
			}
			if first := message.GetVocabulary(); first != nil {
				vocabulary = vocabularyOf(first)
			}
			packed = append(packed, message.GetTable()...)
		}
		if vocabulary == nil {
			return both{}, fmt.Errorf("%w: no vocabulary stands before its table", ErrMalformedAnswer)
		}
		table, err := unpackTable(packed, int(vocabulary.TokenCount))
		return both{table, vocabulary}, err
	})
	return found.table, found.vocabulary, err
}

// Text gives the bytes that these tokens spell. Special tokens, and ids past the table, spell nothing.
func (t *TokenTable) Text(ids []uint32) []byte {
	var text []byte
	for _, id := range ids {
		if _, special := t.Special[id]; !special && int64(id) < int64(len(t.Tokens)) {
			text = append(text, t.Tokens[id]...)
		}
	}
	return text
}

// The layout of a packed table; see VocabularyChunk.data in the protocol.
const (
	tableMagic = "CDTABLE\x01"

	textRecord, specialRecord, unusedRecord = 0, 1, 2
)

func (t *TokenTable) pack() []byte {
	packed := []byte(tableMagic)
	count := len(t.Tokens)
	for id := range t.Special {
		count = max(count, int(id)+1)
	}
	for id := range count {
		kind, data := byte(unusedRecord), []byte(nil)
		if spelling, special := t.Special[uint32(id)]; special {
			kind, data = specialRecord, []byte(spelling)
		} else if id < len(t.Tokens) && t.Tokens[id] != nil {
			kind, data = textRecord, t.Tokens[id]
		}
		packed = append(packed, kind)
		packed = binary.LittleEndian.AppendUint32(packed, uint32(len(data)))
		packed = append(packed, data...)
	}
	return packed
}

func unpackTable(packed []byte, count int) (*TokenTable, error) {
	rest, found := bytes.CutPrefix(packed, []byte(tableMagic))
	if !found {
		return nil, fmt.Errorf("%w: the token table does not begin with %q", ErrMalformedAnswer, tableMagic)
	}
	table := &TokenTable{Special: map[uint32]string{}}
	for len(rest) > 0 {
		id := len(table.Tokens)
		if len(rest) < 5 || uint64(len(rest)-5) < uint64(binary.LittleEndian.Uint32(rest[1:])) {
			return nil, fmt.Errorf("%w: the token table breaks off in the record of id %d", ErrMalformedAnswer, id)
		}
		kind, end := rest[0], 5+int(binary.LittleEndian.Uint32(rest[1:]))
		data := rest[5:end:end]
		rest = rest[end:]
		switch kind {
		case textRecord:
			table.Tokens = append(table.Tokens, data)
		case specialRecord:
			table.Special[uint32(id)] = string(data)
			table.Tokens = append(table.Tokens, nil)
		case unusedRecord:
			table.Tokens = append(table.Tokens, nil)
		default:
			return nil, fmt.Errorf("%w: the token table's record of id %d is of the unknown kind %d", ErrMalformedAnswer, id, kind)
		}
	}
	if len(table.Tokens) != count {
		return nil, fmt.Errorf("%w: the token table has %d records, expected %d", ErrMalformedAnswer, len(table.Tokens), count)
	}
	return table, nil
}

func vocabularyOf(message *pb.Vocabulary) *Vocabulary {
	return &Vocabulary{
		ID: message.GetVocabularyId(), TokenCount: message.GetTokenCount(), LogitsWidth: message.GetLogitsWidth(),
		EOGIDs: message.GetEogIds(), BOSID: message.BosId, HasEncoder: message.GetHasEncoder(),
	}
}
