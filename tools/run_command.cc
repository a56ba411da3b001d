#include "tools/run_command.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "client/saved_model.h"
#include "tools/flags.h"
#include "tools/run_fetches.h"
#include "tools/run_script.h"
#include "tools/session_flags.h"

namespace monograph {
namespace {

struct RunFlags {
  std::vector<std::string> graph, feeds, fetches, targets, init, tags = {SavedModel::kServe};
  std::string script, out, signature = SavedModel::kServingDefault;
  SessionFlags session;
};

// Refuses flags that do not go together.
Status CheckFlags(const RunFlags& flags) {
  const bool model = SavedModel::IsFolder(flags.graph[0]);
  const bool step = !flags.fetches.empty() || !flags.targets.empty();
  if (!flags.script.empty()) {
    if (step || !flags.feeds.empty() || !flags.init.empty())
      return InvalidArgument(
          "--script says what runs; --feeds, --fetches, --targets and --init are for a run without "
          "one");
    if (flags.out.empty())
      return InvalidArgument("--script and --out, the folder for its results, go together");
    return Status();
  }
  if (!step && !model) return InvalidArgument("give --fetches or --targets, or a --script");
  if (!flags.out.empty())
    return InvalidArgument("--out is for a --script; a fetch is written by y:0=y.npy");
  return CheckFetches(flags.fetches);
}

Result<bool> Run(const RunFlags& flags) {
  RunModelOptions model{.path = flags.graph[0], .signature = flags.signature, .tags = flags.tags};
  model.session = flags.session.Options();
  MG_ASSIGN_OR_RETURN(model.cluster, flags.session.Cluster());
  if (!flags.script.empty()) return RunScript({std::move(model), flags.script, flags.out});
  MG_RETURN_IF_ERROR(RunFetches({.model = std::move(model),
                                 .feeds = flags.feeds,
                                 .fetches = flags.fetches,
                                 .targets = flags.targets,
                                 .init = flags.init}));
  return true;
}

}  // namespace

int RunCommand(const std::vector<std::string>& arguments) {
  RunFlags run;
  Flags flags(
      "monograph run",
      "Runs a GraphDef (.pb or .pbtxt), ours or TensorFlow's, or a SavedModel: one step, whose "
      "fetches are printed or written;\n"
      "or the steps of a script, all in one session, which writes <step>_<fetch>.npy and "
      "result.json.\n"
      "Exits with 1 if a step failed.\n\n"
      "Examples:\n"
      "  monograph run graph.pb --feeds=x:0=x.npy --fetches=y:0\n"
      "  monograph run graph.pb --init=init --feeds='x:0=[[1, 2]],rate:0=0.5' \\\n"
      "      --fetches=loss:0,w:0=w.npy --targets=train\n"
      "  monograph run export/1 --feeds='x=[[1, 2]]' --signature=serving_default\n"
      "  monograph run graph.pb --script=steps.json --out=results\n"
      "  monograph run graph.pb --script=steps.json --out=results --cluster=cluster.json\n");
  flags.AddPositional("GRAPH", &run.graph, 1,
                      "the GraphDef, .pb or .pbtxt, or the folder of a SavedModel");
  flags.Add("signature", &run.signature,
            "of a SavedModel: whose names --feeds and --fetches may have, beside those of tensors; "
            "without --fetches and --targets all its outputs are fetched");
  flags.Add("tags", &run.tags, "of the SavedModel's graph, separated by commas");
  flags.AddRepeated("feeds", &run.feeds,
                    "fed tensors: x:0=x.npy, or a value, x:0=3.5 or x:0=[[1, 2], [3, 4]]");
  flags.AddRepeated("fetches", &run.fetches,
                    "fetched tensors: y:0 is printed, y:0=y.npy is written");
  flags.AddRepeated("targets", &run.targets, "operations that run in the same step");
  flags.AddRepeated("init", &run.init, "operations that run before: the initializers of variables");
  flags.Add("script", &run.script,
            "{\"steps\": [{\"targets\": [\"init\"], \"feeds\": {\"x:0\": \"x.npy\"}, \"fetches\": "
            "[\"y:0\"], \"timeout_ms\": 500}]}; a feed may also be {\"string\": \"text\"} or "
            "{\"bytes_file\": \"picture.png\"}");
  flags.AddOutputFolder("out", &run.out,
                        "folder for the results of a script, made if it is not there");
  run.session.AddTo(&flags);
  if (std::optional<int> exit = flags.Parse(arguments)) return *exit;
  for (std::vector<std::string>* list : {&run.feeds, &run.fetches, &run.targets, &run.init}) {
    std::vector<std::string> words;
    for (const std::string& given : *list)
      std::ranges::move(SplitArguments(given), std::back_inserter(words));
    *list = std::move(words);
  }
  if (const Status misuse = CheckFlags(run); !misuse.ok()) return flags.Refuse(misuse);
  const Result<bool> good = Run(run);
  if (!good.ok()) return flags.Exit(good.status());
  return *good ? 0 : 1;
}

}  // namespace monograph
