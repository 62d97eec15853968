using System;
using System.Collections.Generic;
using System.Text;
using NUnit.Framework;

namespace MlxSentis.Tests
{
    /// <summary>Holds the game's prompt constants and its prompt builder against prompt_contract.json.</summary>
    [TestFixture]
    public sealed class PromptContractTests
    {
        private ContractFile _file;

        [OneTimeSetUp]
        public void ReadTheContract()
        {
            _file = ContractFile.BesideThisSource();
        }

        [Test]
        public void TheFileIsTheOneThatThisCodeWasWrittenFrom()
        {
            FieldCheck.Text("schema", PromptContract.Schema, _file.Text("schema"));
            FieldCheck.Text("prompt_contract.json (SHA-256)", PromptContract.FileSha256, _file.Sha256);
        }

        [Test]
        public void TheTemplateIsTheTrainedOne()
        {
            FieldCheck.Text("template_sha256", PromptContract.TemplateSha256, _file.Text("template_sha256"));
        }

        [Test]
        public void ThePromptIsTheTrainedOneToTheByte()
        {
            CheckSample(PromptSamples.Leading);
        }

        [Test]
        public void EverySampleIsTheTrainedOneToTheByte()
        {
            List<string> kinds = new List<string>();
            foreach (PromptSample sample in PromptSamples.Others)
            {
                kinds.Add(sample.Kind);
                CheckSample(sample);
                FieldCheck.Text(
                    ContractFile.FieldName(sample.Field("answer")), sample.Answer, _file.Text(sample.Field("answer")));
            }

            FieldCheck.Texts("samples", kinds, _file.Names("samples"));
        }

        [Test]
        public void AnswersEndWhereTheyWereTrainedToEnd()
        {
            FieldCheck.Ids("stop_ids", PromptContract.StopIds, _file.Ids("stop_ids"));
        }

        [Test]
        public void PaddingIsTheTrainedOne()
        {
            FieldCheck.Number("padding.value", PromptContract.PaddingValue, _file.Number(-1, "padding", "value"));
            FieldCheck.Text("padding.side", PromptContract.PaddingSide, _file.Text("padding", "side"));
        }

        [Test]
        public void ThePromptHasItsBeginTokenOnce()
        {
            FieldCheck.Number("bos.id", PromptContract.BosId, _file.Number(-1, "bos", "id"));
            FieldCheck.Flag(
                "bos.tokenizer_adds_one", PromptContract.TokenizerAddsBos, _file.Flag("bos", "tokenizer_adds_one"));
            int count = _file.Number(-1, "bos", "count_in_prompt");
            FieldCheck.Number("bos.count_in_prompt", PromptContract.BosCountInPrompt, count);
            FieldCheck.Number("bos.count_in_prompt (counted in ids)", BosIn(_file.Ids("ids")), count);
        }

        [Test]
        public void SpecialTokensAreThoseOfTheTokenizer()
        {
            FieldCheck.Texts("special_tokens", PromptContract.SpecialTokens, _file.Texts("special_tokens"));
        }

        [Test]
        public void CallsAreWrittenAsTheyWereTrained()
        {
            CheckSerialisation("style", PromptContract.ToolStyle);
            CheckSerialisation("call_template", PromptContract.CallTemplate);
            CheckSerialisation("key_order", PromptContract.KeyOrder);
            CheckSerialisation("escapes", PromptContract.Escapes);
            CheckSerialisation("none", PromptContract.NoCall);
            CheckSerialisation("probe_answer", PromptContract.ProbeAnswer);
            CheckSerialisation("sample_answer", PromptContract.SampleAnswer);
            bool byTemplate = _file.Value("tool_serialisation", "separators") is string;
            FieldCheck.Texts(
                "tool_serialisation.separators",
                PromptContract.Separators,
                byTemplate ? new List<string>() : _file.Texts("tool_serialisation", "separators"));
        }

        [Test]
        public void ThePromptBuilderWritesWhatTheTemplateWrites()
        {
            FieldCheck.Text("pieces.before", PromptContract.Before, _file.Text("pieces", "before"));
            FieldCheck.Text("pieces.after", PromptContract.After, _file.Text("pieces", "after"));
            FieldCheck.Text("pieces.user_text", UserText(), _file.Text("pieces", "user_text"));
            foreach (string name in _file.Names("pieces", "probes"))
            {
                byte[] wanted = Encoding.UTF8.GetBytes(_file.Text("pieces", "probes", name, "rendered"));
                byte[] found = PromptBuilder.BuildBytes(_file.Text("pieces", "probes", name, "user"));
                FieldCheck.Bytes("pieces.probes." + name + ".rendered", found, wanted);
            }
        }

        [Test]
        public void ThePromptBuilderRefusesWhatWouldEndATurn()
        {
            for (int i = 0; i < PromptContract.SpecialTokens.Count; i++)
            {
                string token = PromptContract.SpecialTokens[i];
                Assert.Throws<ArgumentException>(() => PromptBuilder.Build("a " + token + " b"));
            }
        }

        private void CheckSample(PromptSample sample)
        {
            string rendered = _file.Text(sample.Field("rendered"));
            byte[] found = Encoding.UTF8.GetBytes(sample.Rendered);
            FieldCheck.Bytes(ContractFile.FieldName(sample.Field("rendered")), found, Encoding.UTF8.GetBytes(rendered));
            FieldCheck.Bytes(
                ContractFile.FieldName(sample.Field("rendered_base64")),
                found,
                Convert.FromBase64String(_file.Text(sample.Field("rendered_base64"))));
            FieldCheck.Text(
                ContractFile.FieldName(sample.Field("rendered_sha256")),
                ContractFile.Hash(found),
                _file.Text(sample.Field("rendered_sha256")));
            FieldCheck.Ids(ContractFile.FieldName(sample.Field("ids")), sample.Ids, _file.Ids(sample.Field("ids")));
        }

        private void CheckSerialisation(string key, string found)
        {
            FieldCheck.Text("tool_serialisation." + key, found, _file.Text("tool_serialisation", key));
        }

        private static int BosIn(List<int> ids)
        {
            return ids.FindAll(id => id == PromptContract.BosId).Count;
        }

        private static string UserText()
        {
            string side = PromptContract.StripsStart ? " on the left" : " on the right";
            bool isOne = PromptContract.StripsStart != PromptContract.StripsEnd;
            return isOne ? "stripped" + side : PromptContract.StripsStart ? "stripped" : "as it is";
        }
    }
}
