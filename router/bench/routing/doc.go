// Command routing plays a trace against simulated engines, in virtual time, once for
// each way to choose an engine for a request:
//
//	go run ./bench/routing -trace FILE   # conversations
//	go run ./bench/routing -made         # agents that are made up
//
// Chance decides between engines that are alike, so each way plays it -seeds times; the
// medians are compared, and of the time to the first token the least and most are shown.
// Engines compute one prefill at a time in the order in which requests come, at
// -prefill tokens a second, and let go of blocks by last use. Answers take their time
// beside that. With more engines the trace goes faster in proportion (-workers).
// Compared are tokens found, of all and of those that came before behind the same
// beginning, which is the most that any way can find; the time to the first token and
// how evenly engines are busy, under
//
//   - round robin;
//   - least load: the fewest requests under way;
//   - sticky: a session stays where it began, which was the least loaded engine;
//   - Dynamo's cost function: prefill tokens to come, this request's not found ones
//     included, in blocks, and blocks of requests under way; the lowest
//     (ai-dynamo/dynamo, docs of the KV router, overlap weight 1, temperature 0);
//   - SGLang's tree: the engine with the longest prefix by what the router sent there,
//     if that is half of the prompt, else the one that was sent the fewest blocks;
//     and the shortest queue where queues differ by more than 32 requests
//     (sgl-project/sglang, cache-aware policy of its router, defaults);
//   - kvstored-router: router/index and router/pick, told of blocks when they are
//     computed.
//
// The rivals are written anew from what their documents describe; their code was
// not run. Without the trace the command says so and ends.
package main
